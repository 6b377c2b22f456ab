// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Integer arguments: addresses, counts, types, operators.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

namespace vescomm::python {

// An integer of Python. In contrast to the caster of std::int64_t, members of an IntEnum and the
// scalars of NumPy need no second attempt of nanobind.
struct Integer {
    std::int64_t value = 0;
    operator std::int64_t() const noexcept { return value; }
    // An address. Python gives those of torch, NumPy and vescomm as non-negative integers.
    void *pointer() const noexcept { return reinterpret_cast<void *>(value); }
    // For parameters of 32 bits. A value outside their range becomes -1, which the library rejects
    // in every parameter that this is used for.
    std::int32_t small() const noexcept {
        return value == static_cast<std::int32_t>(value) ? static_cast<std::int32_t>(value) : -1;
    }
};

// Numbers of elements, one for each rank: any sequence of integers.
struct Integers {
    std::vector<std::int64_t> values;
};

// Reads an integer. Returns false, without an exception of Python, if `object` is none.
inline bool read_integer(PyObject *object, std::int64_t &value) noexcept {
    PyObject *index = nullptr;
    if (!PyLong_Check(object)) {
        index = PyNumber_Index(object);
        if (index == nullptr) {
            PyErr_Clear();
            return false;
        }
        object = index;
    }
    const long long read = PyLong_AsLongLong(object);
    Py_XDECREF(index);
    if (read == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return false;
    }
    value = read;
    return true;
}

}  // namespace vescomm::python

namespace nanobind::detail {

template <>
struct type_caster<vescomm::python::Integer> {
    NB_TYPE_CASTER(vescomm::python::Integer, const_name("int"))

    bool from_python(handle source, std::uint32_t, cleanup_list *) noexcept {
        return vescomm::python::read_integer(source.ptr(), value.value);
    }
};

template <>
struct type_caster<vescomm::python::Integers> {
    NB_TYPE_CASTER(vescomm::python::Integers, const_name("collections.abc.Sequence[int]"))

    bool from_python(handle source, std::uint32_t, cleanup_list *) noexcept {
        if (PyUnicode_Check(source.ptr()) || PyBytes_Check(source.ptr())) return false;
        PyObject *items = PySequence_Fast(source.ptr(), "");
        if (items == nullptr) {
            PyErr_Clear();
            return false;
        }
        const bool list = PyList_Check(items);
        const Py_ssize_t size = PySequence_Size(items);
        value.values.resize(static_cast<std::size_t>(size));
        bool good = true;
        for (Py_ssize_t i = 0; i < size && good; ++i) {
            PyObject *item = list ? PyList_GetItem(items, i) : PyTuple_GetItem(items, i);
            good = vescomm::python::read_integer(item, value.values[static_cast<std::size_t>(i)]);
        }
        Py_DECREF(items);
        return good;
    }
};

}  // namespace nanobind::detail
