// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "export.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

#include "convert.h"
#include "errors.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

// Takes the exception of Python that is set.
nb::python_error take_error() {
    nb::python_error error;
    if (must_pass(error)) throw error;
    return error;
}

// Objects of calls of __dlpack__(), which is called for each array. Never freed.
struct Names {
    nb::object dlpack = nb::steal(PyUnicode_InternFromString("__dlpack__"));
    nb::object version = nb::make_tuple(1, 0);
    nb::object max_version = nb::make_tuple(nb::steal(PyUnicode_InternFromString("max_version")));
};

const Names &names() {
    static const auto *all = new Names;
    return *all;
}

// Calls __dlpack__(), with or without a version. Without one, no read-only array is exported.
nb::object call_dlpack(nb::handle array, bool versioned) {
    PyObject *const arguments[] = {array.ptr(), names().version.ptr()};
    PyObject *const result = PyObject_VectorcallMethod(
        names().dlpack.ptr(), arguments, 1, versioned ? names().max_version.ptr() : nullptr);
    if (result == nullptr) throw nb::python_error();
    return nb::steal(result);
}

}  // namespace

bool exports_dlpack(nb::handle type) {
    return type.is(nb::handle(reinterpret_cast<PyObject *>(&PyCapsule_Type))) ||
           nb::hasattr(type, names().dlpack);
}

nb::object export_dlpack(nb::handle array, bool writable, NoExport &why) {
    if (PyCapsule_CheckExact(array.ptr())) return nb::borrow(array);
    // The one without a version is the faster way of most packages, but it does not say that an
    // array is read-only. Packages that refuse one of them raise BufferError or TypeError.
    nb::object capsule;
    try {
        try {
            capsule = call_dlpack(array, writable);
        } catch (const nb::python_error &error) {
            if (!error.matches(PyExc_BufferError) && !error.matches(PyExc_TypeError)) throw;
            capsule = call_dlpack(array, !writable);
        }
    } catch (const nb::python_error &error) {
        if (must_pass(error)) throw;
        why.raised.emplace(error);
        return {};
    }
    return capsule;
}

std::string why_unusable(nb::handle exported) {
    if (!PyCapsule_CheckExact(exported.ptr()))
        return "a value of type " + type_name_of(exported) + " instead of a capsule";
    if (PyCapsule_IsValid(exported.ptr(), "dltensor") != 0 ||
        PyCapsule_IsValid(exported.ptr(), "dltensor_versioned") != 0)
        return {};
    return "a capsule that has been used; it must return a new one each time";
}

nb::object export_buffer(nb::handle array, NoExport &why) {
    if (!PyObject_CheckBuffer(array.ptr())) return {};
    PyObject *const view = PyMemoryView_FromObject(array.ptr());
    if (view != nullptr) return nb::steal(view);
    why.buffer_raised.emplace(take_error());
    return {};
}

nb::object export_dlpack_of_framework(nb::handle array) {
    struct Framework {
        std::string_view prefix;
        const char *module;
    };
    static constexpr std::array<Framework, 2> frameworks{
        {{"torch", "torch.utils.dlpack"}, {"tensorflow", "tensorflow.experimental.dlpack"}}};
    const nb::object module = nb::getattr(array.type(), "__module__", nb::none());
    if (!nb::isinstance<nb::str>(module)) return {};
    const std::string_view name = nb::borrow<nb::str>(module).c_str();
    for (const Framework &framework : frameworks) {
        if (!name.starts_with(framework.prefix)) continue;
        try {
            return nb::module_::import_(framework.module).attr("to_dlpack")(array);
        } catch (const nb::python_error &error) {
            if (must_pass(error)) throw;
        }
    }
    return {};
}

std::string text_of(const nb::python_error &error) {
    const nb::object text = nb::steal(PyObject_Str(error.value().ptr()));
    if (text.is_valid()) {
        const nb::object bytes =
            nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
        if (bytes.is_valid())
            return {PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(nb::len(bytes))};
    }
    take_error();
    return "an exception without a text";
}

std::optional<ArrayInterface> interface_of(nb::handle array, const std::string &subject) {
    const nb::object found = nb::steal(PyObject_GetAttrString(array.ptr(), "__array_interface__"));
    if (!found.is_valid()) {
        take_error();
        return {};
    }
    const auto wrong = [&](const std::string &key, nb::handle value, const char *expected) {
        refuse_type(subject + "has an __array_interface__ whose " + key + " is of type " +
                    type_name_of(value) + "; " + expected + " is needed");
    };
    if (!nb::isinstance<nb::dict>(found))
        refuse_type(subject + "has an __array_interface__ of type " + type_name_of(found) +
                    "; a dict is needed");
    const auto values = nb::borrow<nb::dict>(found);
    const auto value_of = [&](const char *key) -> nb::object {
        if (!values.contains(key)) return nb::none();
        return values[key];
    };
    const auto numbers_of = [&](const char *key, nb::handle value) {
        if (!nb::isinstance<nb::tuple>(value)) wrong(key, value, "a tuple of integers");
        const std::string place = subject + "has an __array_interface__: " + key;
        return read_integers(value, {{}, 0, place.c_str()}).values;
    };
    ArrayInterface interface;
    const nb::object data = value_of("data");
    if (!nb::isinstance<nb::tuple>(data) || nb::len(data) != 2)
        wrong("data", data, "a tuple of an address and whether it is read-only");
    const nb::object address = data[0], read_only = data[1];
    if (!PyLong_Check(address.ptr())) wrong("address in data", address, "an integer");
    interface.data = PyLong_AsVoidPtr(address.ptr());
    if (interface.data == nullptr && PyErr_Occurred()) {
        take_error();
        refuse(subject + "has an __array_interface__ whose address is no address of this machine");
    }
    const int truth = PyObject_IsTrue(read_only.ptr());
    if (truth < 0) throw nb::python_error();
    interface.read_only = truth != 0;
    interface.shape = numbers_of("shape", value_of("shape"));
    const nb::object strides = value_of("strides");
    if (!strides.is_none()) interface.strides = numbers_of("strides", strides);
    if (interface.strides && interface.strides->size() != interface.shape.size())
        refuse(subject + "has an __array_interface__ with " +
               std::to_string(interface.strides->size()) + " strides and " +
               std::to_string(interface.shape.size()) + " extents; it needs as many");
    // An extent of 0 makes the number 0, also if others would overflow.
    const bool empty = std::ranges::find(interface.shape, 0) != interface.shape.end();
    for (const std::int64_t extent : interface.shape)
        if (extent < 0 ||
            (!empty && __builtin_mul_overflow(interface.elements, extent, &interface.elements)))
            refuse(subject + "has an __array_interface__ with an extent of " +
                   std::to_string(extent) + "; no memory has an array of this shape");
    if (empty) interface.elements = 0;
    const nb::object type = value_of("typestr");
    if (!nb::isinstance<nb::str>(type)) wrong("typestr", type, "a str such as \"<f4\"");
    const std::string_view code = nb::borrow<nb::str>(type).c_str();
    const char *const end = code.data() + code.size();
    // Objects of Python have no size. That of dates has their unit behind it: <M8[ns].
    const auto size = std::from_chars(code.data() + std::min<std::size_t>(code.size(), 2), end,
                                      interface.element_bytes);
    if (code.size() < 2 || (code[1] != 'O' && size.ec != std::errc()) ||
        (size.ptr != end && *size.ptr != '['))
        refuse(subject + "has an __array_interface__ whose typestr is \"" + std::string(code) +
               "\"; one such as \"<f4\" is needed");
    interface.kind = code[1];
    interface.native = code[0] != '>';
    return interface;
}

bool is_scalar_of_numpy(nb::handle type) {
    for (const nb::handle base : nb::borrow<nb::tuple>(type.attr("__mro__"))) {
        const nb::object name = nb::getattr(base, "__name__", nb::none());
        const nb::object module = nb::getattr(base, "__module__", nb::none());
        if (name.equal(nb::str("generic")) && module.equal(nb::str("numpy"))) return true;
    }
    return false;
}

}  // namespace vescomm::python
