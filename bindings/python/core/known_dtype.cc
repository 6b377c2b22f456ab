// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "known_dtype.h"

#include <algorithm>
#include <array>
#include <utility>

namespace nb = nanobind;

namespace vescomm::python {

namespace {

struct Known {
    PyObject *dtype = nullptr;  // kept, so that no other dtype gets its address
    vescomm_type_t type = VESCOMM_TYPE_DEFAULT;
};

std::array<Known, 8> known{};
std::size_t number_known = 0, next_known = 0;

// PyArrayInterface of NumPy, in the capsule of __array_struct__.
struct ArrayStruct {
    int two;
    int dimensions;
    char kind;
    int element_bytes;
    int flags;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    void *data;
};
constexpr int contiguous = 0x1, native = 0x200, writable = 0x400;

nb::object attribute(nb::handle object, PyObject *name) {
    PyObject *const value = PyObject_GetAttr(object.ptr(), name);
    if (value == nullptr) PyErr_Clear();
    return nb::steal(value);
}

}  // namespace

void remember_dtype(nb::handle dtype, vescomm_type_t type) {
    if (std::ranges::find(known, dtype.ptr(), &Known::dtype) != known.end()) return;
    PyObject *const dropped = std::exchange(known[next_known].dtype, Py_NewRef(dtype.ptr()));
    known[next_known].type = type;
    next_known = (next_known + 1) % known.size();
    number_known = std::min(number_known + 1, known.size());
    Py_XDECREF(dropped);
}

std::optional<KnownArray> known_array(nb::handle array, bool output) {
    if (number_known == 0) return {};
    static PyObject *const dtype_name = PyUnicode_InternFromString("dtype");
    static PyObject *const struct_name = PyUnicode_InternFromString("__array_struct__");
    const nb::object dtype = attribute(array, dtype_name);
    const auto its = std::ranges::find(known, dtype.ptr(), &Known::dtype);
    if (!dtype.is_valid() || its == known.end()) return {};
    const nb::object capsule = attribute(array, struct_name);
    if (!capsule.is_valid() || !PyCapsule_CheckExact(capsule.ptr())) return {};
    const auto *read =
        static_cast<const ArrayStruct *>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
    if (read == nullptr) {
        PyErr_Clear();
        return {};
    }
    const int needed = contiguous | native | (output ? writable : 0);
    if (read->two != 2 || (read->flags & needed) != needed) return {};
    KnownArray found{read->data, 1, static_cast<std::size_t>(read->element_bytes), its->type};
    for (int i = 0; i < read->dimensions; ++i) found.elements *= read->shape[i];
    return found;
}

}  // namespace vescomm::python
