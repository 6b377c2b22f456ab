// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "argument.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "array.h"
#include "errors.h"
#include "types.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

using Readable = nb::ndarray<nb::ro>;

struct Reader {
    nb::handle array;
    const char *name;
    const TypeArgument &explicit_type;

    std::string type_name() const { return nb::cast<std::string>(array.type().attr("__name__")); }

    [[noreturn]] void refuse(const std::string &why) const {
        python::refuse(std::string(name) + ", a " + type_name() + ", " + why);
    }

    // The type of the elements. `natural`: the type that the array names, or 0. `bytes`: the size
    // of its elements.
    vescomm_type_t type(vescomm_type_t natural, std::size_t bytes) const {
        if (!explicit_type) {
            if (natural == VESCOMM_TYPE_DEFAULT)
                refuse("has elements of " + std::to_string(bytes) +
                       " bytes of a type that vescomm has not; give the type of the elements that "
                       "are meant: type=");
            return natural;
        }
        const vescomm_type_t given = explicit_type->small();
        if (vescomm_type_get_bytes(given) != bytes)
            refuse("has elements of " + std::to_string(bytes) + " bytes, and type=" +
                   name_of(given) + " has " + std::to_string(vescomm_type_get_bytes(given)));
        return given;
    }

    [[noreturn]] void refuse_strides() const {
        refuse("is not contiguous; pass a contiguous array, which the call then uses in place");
    }

    // Strides in multiples of `unit`, of row-major order.
    template <typename Extent, typename Stride>
    void require_contiguous(std::size_t dimensions, const Extent &extent, const Stride &stride,
                            std::int64_t unit) const {
        std::int64_t elements = 1;
        for (std::size_t i = 0; i < dimensions; ++i) elements *= extent(i);
        if (elements == 0) return;
        std::int64_t expected = unit;
        for (std::size_t i = dimensions; i-- > 0;) {
            if (extent(i) != 1 && stride(i) != expected) refuse_strides();
            expected *= extent(i);
        }
    }

    template <typename Imported>
    Argument from_dlpack(Imported &imported) const {
        if (imported.device_type() != nb::device::cpu::value)
            refuse("is not in host memory, the only kind that vescomm has so far");
        require_contiguous(
            imported.ndim(),
            [&](std::size_t i) { return static_cast<std::int64_t>(imported.shape(i)); },
            [&](std::size_t i) { return imported.stride(i); }, 1);
        const nb::dlpack::dtype dtype = imported.dtype();
        if (dtype.lanes != 1 || dtype.bits % 8 != 0)
            refuse("has elements that are parts of bytes, or several in one");
        Argument argument;
        argument.type = type(type_of(dtype), dtype.bits / 8);
        argument.elements = static_cast<std::int64_t>(imported.size());
        argument.data = const_cast<void *>(static_cast<const void *>(imported.data()));
        return argument;
    }

    // NumPy's arrays of ml_dtypes: neither DLPack nor the buffer protocol has their types.
    std::optional<Argument> from_interface(bool output) const {
        nb::object interface;
        try {
            interface = array.attr("__array_interface__");
        } catch (const nb::python_error &) {
            return {};
        }
        const auto values = nb::cast<nb::dict>(interface);
        const auto data = nb::cast<nb::tuple>(values["data"]);
        if (output && nb::cast<bool>(data[1])) refuse("is read-only; an output is written");
        const auto shape = nb::cast<nb::tuple>(values["shape"]);
        const std::string code = nb::cast<nb::str>(values["typestr"]).c_str();
        if (code.starts_with("|O")) refuse("has elements that are objects of Python");
        if (code.size() < 3 || code[0] == '>')
            refuse("has elements in an order of bytes that is not this machine's");
        const std::size_t bytes = std::stoul(code.substr(2));
        const auto extent = [&](std::size_t i) { return nb::cast<std::int64_t>(shape[i]); };
        if (values.contains("strides") && !values["strides"].is_none()) {
            const auto strides = nb::cast<nb::tuple>(values["strides"]);
            require_contiguous(
                shape.size(), extent,
                [&](std::size_t i) { return nb::cast<std::int64_t>(strides[i]); },
                static_cast<std::int64_t>(bytes));
        }
        vescomm_type_t natural = VESCOMM_TYPE_DEFAULT;
        if (nb::hasattr(array, "dtype"))
            natural = type_of(std::string_view(nb::str(array.attr("dtype").attr("name")).c_str()));
        Argument argument;
        argument.type = type(natural, bytes);
        argument.elements = 1;
        for (std::size_t i = 0; i < shape.size(); ++i) argument.elements *= extent(i);
        argument.data = reinterpret_cast<void *>(nb::cast<std::uintptr_t>(data[0]));
        argument.owner = nb::borrow(array);
        return argument;
    }

    std::optional<Argument> from_own() const {
        if (!is_own_array(array)) return {};
        if (!nb::inst_ready(array)) refuse("has no memory; Communicator.empty() makes an array");
        const Array &own = *nb::inst_ptr<Array>(array);
        Argument argument;
        argument.owner = nb::borrow(array);
        argument.data = own.data();
        argument.elements = own.elements();
        argument.type = type(own.type(), vescomm_type_get_bytes(own.type()));
        return argument;
    }
};

// JAX exports its immutable arrays as writable ones.
bool is_of_jax(nb::handle type) {
    const nb::object module = nb::getattr(type, "__module__", nb::none());
    if (!nb::isinstance<nb::str>(module)) return false;
    const std::string name = nb::cast<std::string>(module);
    return name == "jax" || name.starts_with("jax.") || name.starts_with("jaxlib");
}

// Properties of all arrays of a type.
struct Traits {
    bool immutable = false;
    bool lazy = false;  // has views that conjugate or negate elements as they are read
};

Traits traits_of(nb::handle type) {
    struct Known {
        PyObject *type = nullptr;
        Traits traits;
    };
    // The types of recent arrays. Kept, so that no other type gets the address of one.
    static std::array<Known, 4> known{};
    static std::size_t next = 0;
    const auto found = std::ranges::find(known, type.ptr(), &Known::type);
    if (found != known.end()) return found->traits;
    const Traits traits{is_of_jax(type),
                        nb::hasattr(type, "is_conj") && nb::hasattr(type, "is_neg")};
    Known &oldest = known[next];
    next = (next + 1) % known.size();
    PyObject *const dropped = std::exchange(oldest.type, Py_NewRef(type.ptr()));
    oldest.traits = traits;
    Py_XDECREF(dropped);
    return traits;
}

// Conjugate and negative views of torch share the memory of other tensors, which holds other values
// than they show. Neither DLPack nor the library can say so.
void refuse_lazy(const Reader &reader) {
    const auto refuse = [&](const std::string &kind, const std::string &resolve) {
        reader.refuse("is a " + kind +
                      " view: its memory holds other values than it shows; pass "
                      "the copy that " +
                      resolve + "() returns");
    };
    if (nb::cast<bool>(reader.array.attr("is_conj")())) refuse("conjugate", "resolve_conj");
    if (nb::cast<bool>(reader.array.attr("is_neg")())) refuse("negative", "resolve_neg");
}

// The object that nanobind imports. It reads the strides of a buffer, which ctypes leaves null; a
// memoryview has them.
nb::object importable(nb::handle array) {
    if (!PyObject_CheckBuffer(array.ptr()) || nb::hasattr(array.type(), "__dlpack__"))
        return nb::borrow(array);
    PyObject *const view = PyMemoryView_FromObject(array.ptr());
    if (view != nullptr) return nb::steal(view);
    PyErr_Clear();
    return nb::none();
}

template <typename Imported>
std::optional<Argument> import(const Reader &reader, Imported Argument::*member) {
    Imported imported;
    if (!nb::try_cast(importable(reader.array), imported, false)) return {};
    Argument argument = reader.from_dlpack(imported);
    argument.*member = std::move(imported);
    return argument;
}

}  // namespace

Argument read_source(nb::handle array, const char *name, const TypeArgument &type) {
    const Reader reader{array, name, type};
    if (auto own = reader.from_own()) return std::move(*own);
    if (traits_of(array.type()).lazy) refuse_lazy(reader);
    if (auto imported = import(reader, &Argument::readable)) return std::move(*imported);
    if (auto interface = reader.from_interface(false)) return std::move(*interface);
    reader.refuse("is not an array: it has neither __dlpack__() nor the buffer protocol");
}

Argument read_output(nb::handle array, const char *name, const TypeArgument &type) {
    const Reader reader{array, name, type};
    if (auto own = reader.from_own()) return std::move(*own);
    const Traits traits = traits_of(array.type());
    if (traits.immutable) reader.refuse("is immutable; an output is written");
    if (traits.lazy) refuse_lazy(reader);
    if (auto imported = import(reader, &Argument::writable)) return std::move(*imported);
    if (auto interface = reader.from_interface(true)) return std::move(*interface);
    Readable readable;
    if (nb::try_cast(importable(array), readable, false))
        reader.refuse("is read-only; an output is written");
    reader.refuse("is not an array: it has neither __dlpack__() nor the buffer protocol");
}

}  // namespace vescomm::python
