// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "array.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>

#include "docs.h"
#include "gil.h"
#include "integer.h"
#include "types.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

// Registered memory. The communicator lives at least as long.
struct RegisteredMemory {
    std::shared_ptr<CommHandle> comm;
    void *data = nullptr;

    RegisteredMemory(std::shared_ptr<CommHandle> on, std::uint64_t bytes) : comm(std::move(on)) {
        vescomm_status_t status = VESCOMM_OK;
        {
            const GilReleased released;
            status = vescomm_malloc(comm->get(), bytes, &data);
        }
        check(status);
        CommHandle::array_memory().insert(data);
    }
    RegisteredMemory(const RegisteredMemory &) = delete;
    RegisteredMemory &operator=(const RegisteredMemory &) = delete;
    ~RegisteredMemory() {
        CommHandle::array_memory().erase(data);
        vescomm_mfree(comm->get(), data);
    }
};

constexpr const char *no_memory = "the array has no memory; Communicator.empty() makes one";

// An object of nanobind for the same memory, which exports it by DLPack. It keeps `self` alive.
nb::object exporter(nb::handle self) {
    if (!nb::inst_ready(self)) {  // made by __new__() alone
        PyErr_SetString(PyExc_BufferError, no_memory);
        throw nb::python_error();
    }
    const auto &array = *nb::inst_ptr<Array>(self);
    require_exportable(array.shape().size());
    const std::vector<std::size_t> shape(array.shape().begin(), array.shape().end());
    return nb::cast(nb::ndarray<nb::array_api>(array.data(), shape.size(), shape.data(), self,
                                               nullptr, dlpack_of(array.type())));
}

// The order of Fortran, too: at most one extent differs from 1, or there are no elements.
bool any_order(const Array &array) {
    return array.elements() == 0 || std::ranges::count_if(array.shape(), [](std::int64_t extent) {
                                        return extent != 1;
                                    }) <= 1;
}

int get_buffer(PyObject *self, Py_buffer *view, int flags) {
    view->obj = nullptr;
    if (!nb::inst_ready(self)) {  // made by __new__() alone
        PyErr_SetString(PyExc_BufferError, no_memory);
        return -1;
    }
    const auto &array = *nb::inst_ptr<Array>(self);
    const char *format = format_of(array.type());
    if (format == nullptr) {
        PyErr_Format(PyExc_BufferError,
                     "the buffer protocol has no elements of type %s; use DLPack, numpy() or "
                     "torch()",
                     name_of(array.type()));
        return -1;
    }
    const auto asks = [flags](int for_flags) { return (flags & for_flags) == for_flags; };
    if (asks(PyBUF_F_CONTIGUOUS) && !any_order(array)) {
        PyErr_SetString(PyExc_BufferError,
                        "the array is in the order of C, and a buffer in that of Fortran is asked "
                        "for");
        return -1;
    }
    // A consumer that takes no shape reads bytes.
    if (!asks(PyBUF_ND) && asks(PyBUF_FORMAT)) {
        PyErr_SetString(PyExc_BufferError,
                        "a buffer with a format and without a shape is asked for; it needs both");
        return -1;
    }
    if (array.shape().size() > max_exported_dimensions) {
        PyErr_SetString(PyExc_BufferError, too_many_dimensions(array.shape().size()).c_str());
        return -1;
    }
    static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));
    const auto numbers = [](const std::vector<std::int64_t> &all) {
        return all.empty() ? nullptr
                           : reinterpret_cast<Py_ssize_t *>(const_cast<std::int64_t *>(all.data()));
    };
    view->buf = array.data();
    view->obj = Py_NewRef(self);
    view->len = static_cast<Py_ssize_t>(array.bytes());
    view->itemsize = static_cast<Py_ssize_t>(vescomm_type_get_bytes(array.type()));
    view->readonly = 0;
    view->ndim = asks(PyBUF_ND) ? static_cast<int>(array.shape().size()) : 1;
    view->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char *>(format) : nullptr;
    view->shape = asks(PyBUF_ND) ? numbers(array.shape()) : nullptr;
    view->strides = asks(PyBUF_STRIDES) ? numbers(array.strides()) : nullptr;
    view->suboffsets = nullptr;
    view->internal = nullptr;
    return 0;
}

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void *>(get_buffer)}, {0, nullptr}};

std::string describe(const Array &array) {
    std::string text = "vescomm.Array(shape=(";
    for (const std::int64_t extent : array.shape()) text += std::to_string(extent) + ",";
    return text + "), type=" + name_of(array.type()) + ")";
}

}  // namespace

std::string too_many_dimensions(std::size_t dimensions) {
    return "the array has " + std::to_string(dimensions) +
           " dimensions, and other packages share arrays of at most " +
           std::to_string(max_exported_dimensions);
}

void require_exportable(std::size_t dimensions) {
    if (dimensions <= max_exported_dimensions) return;
    PyErr_SetString(PyExc_BufferError, too_many_dimensions(dimensions).c_str());
    throw nb::python_error();
}

Array::Array(void *data, std::vector<std::int64_t> shape, vescomm_type_t type,
             std::shared_ptr<void> owner)
    : data_(data),
      shape_(std::move(shape)),
      strides_(shape_.size()),
      type_(type),
      owner_(std::move(owner)) {
    const auto size = static_cast<std::int64_t>(vescomm_type_get_bytes(type));
    for (std::size_t i = shape_.size(); i-- > 0;) {
        strides_[i] = elements_ * size;
        elements_ *= shape_[i];
    }
}

Array Array::raw() const {
    return Array(data_, {static_cast<std::int64_t>(bytes())}, VESCOMM_U8, owner_);
}

Array registered_array(Comm &comm, std::vector<std::int64_t> shape, vescomm_type_t type) {
    const std::size_t size = vescomm_type_get_bytes(type);
    if (size == 0) refuse("type is " + std::to_string(type) + "; use a member of vescomm.Type");
    // An extent of 0 makes it 0, but the strides of the other extents must be countable, too.
    std::int64_t bytes = static_cast<std::int64_t>(size);
    for (const std::int64_t extent : shape) {
        const std::int64_t factor = std::max<std::int64_t>(extent, 1);
        if (extent < 0 || __builtin_mul_overflow(bytes, factor, &bytes))
            refuse("an extent of the shape is " + std::to_string(extent) +
                   "; give extents of at least 0 of an array that fits into memory");
    }
    if (std::ranges::find(shape, 0) != shape.end()) bytes = 0;
    auto memory =
        std::make_shared<RegisteredMemory>(comm.share(), static_cast<std::uint64_t>(bytes));
    void *const data = memory->data;
    return Array(data, std::move(shape), type, std::move(memory));
}

bool is_own_array(nb::handle object) noexcept {
    return object.type().is(nb::type<Array>());
}

void define_array(nb::module_ &module, nb::class_<Comm> &comm) {
    // The conversions are written in Python.
    const auto convert = [](const char *function) {
        return [function](nb::handle self) {
            return nb::module_::import_("vescomm.buffer").attr(function)(self);
        };
    };
    nb::class_<Array>(module, "Array", docs::array, nb::type_slots(slots),
                      nb::is_weak_referenceable())
        .def_prop_ro(
            "address",
            [](const Array &array) { return reinterpret_cast<std::uintptr_t>(array.data()); },
            docs::array_address)
        .def_prop_ro(
            "shape", [](const Array &array) { return nb::tuple(nb::cast(array.shape())); },
            docs::array_shape)
        .def_prop_ro(
            "type", [](const Array &array) { return to_python(array.type()); }, docs::array_type)
        .def_prop_ro("size", &Array::elements, docs::array_size)
        .def_prop_ro("nbytes", &Array::bytes, docs::array_nbytes)
        .def("numpy", convert("to_numpy"), docs::array_numpy)
        .def("torch", convert("to_torch"), docs::array_torch)
        .def("_raw", &Array::raw)
        .def("__repr__", describe)
        .def("__array__",
             [](nb::handle self, nb::args args, nb::kwargs kwargs) {
                 return self.attr("numpy")().attr("__array__")(*args, **kwargs);
             })
        .def("__dlpack__",
             [](nb::handle self, nb::args args, nb::kwargs kwargs) {
                 return exporter(self).attr("__dlpack__")(*args, **kwargs);
             })
        .def("__dlpack_device__", [](const Array &) {
            return nb::make_tuple(static_cast<int>(nb::device::cpu::value), 0);
        });
    comm.def("_empty", [](Comm &on, const Integers &shape, ElementType type) {
        return registered_array(on, shape.values, type.small("type"));
    });
}

}  // namespace vescomm::python
