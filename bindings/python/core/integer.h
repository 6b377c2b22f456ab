// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Integer arguments: addresses, counts, types, operators.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "errors.h"

namespace vescomm::python {

// An integer of Python. In contrast to the caster of std::int64_t, members of an IntEnum and the
// scalars of NumPy need no second attempt of nanobind.
struct Integer {
    std::int64_t value = 0;
    operator std::int64_t() const noexcept { return value; }
    // An address. Python gives those of torch, NumPy and vescomm as non-negative integers.
    void *pointer() const noexcept { return reinterpret_cast<void *>(value); }
    // For parameters of 32 bits. Refuses other values; `name`: of the parameter, for the sentence.
    std::int32_t small(const char *name) const {
        if (value != static_cast<std::int32_t>(value)) [[unlikely]]
            refuse(std::string(name) + " is " + std::to_string(value) +
                   "; it must be an integer of 32 bits");
        return static_cast<std::int32_t>(value);
    }
};

// A member of an enumeration of vescomm, or its value.
struct OpArgument : Integer {
    static constexpr char type[] = "vescomm.Op", name[] = "op";
    static constexpr char members[] = "vescomm.Op, such as Op.SUM";
};
struct ElementType : Integer {
    static constexpr char type[] = "vescomm.Type", name[] = "type";
    static constexpr char members[] = "vescomm.Type, such as Type.F32";
};
struct SharingArgument : Integer {
    static constexpr char type[] = "vescomm.Sharing", name[] = "sharing";
    static constexpr char members[] = "vescomm.Sharing, such as Sharing.PER_NODE";
};

// The number of a rank, which no enumeration of vescomm has.
struct RootArgument : Integer {
    static constexpr char type[] = "int", name[] = "root";
    static constexpr char members[] = "";
};

// A number of bytes.
struct SizeArgument : Integer {
    static constexpr char type[] = "int", name[] = "bytes";
};
struct OffsetArgument : Integer {
    static constexpr char type[] = "int", name[] = "offset_bytes";
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

// Readers of arguments that raise exceptions with the name of the argument, which those of nanobind
// have not.
//
// A member of the enumeration `type`, such as "vescomm.Op", or its value. Refuses members of other
// enumerations of vescomm, and, unless `type` is "int", bools.
std::int64_t read_member(nanobind::handle object, const char *name, const char *type,
                         const char *members);
// The same without the reading, for the name of an argument or of a value within one.
void refuse_other_members(nanobind::handle object, const std::string &name, const char *type,
                          const char *members);
// An integer from 0 to 2^63 - 1.
std::int64_t read_size(nanobind::handle object, const char *name);

// Reads a sequence of integers. Returns false, without an exception of Python, if `object` is none.
// Throws those of Python that are not errors of the argument: see must_pass().
inline bool read_integers(PyObject *object, std::vector<std::int64_t> &values) {
    if (PyUnicode_Check(object) || PyBytes_Check(object)) return false;
    // __index__() of an element may change a list. A tuple stays as it is.
    const nanobind::object items = nanobind::steal(PySequence_Tuple(object));
    if (!items.is_valid()) {
        nanobind::python_error error;
        if (must_pass(error)) throw error;
        return false;
    }
    const Py_ssize_t size = PyTuple_Size(items.ptr());
    values.resize(static_cast<std::size_t>(size));
    for (Py_ssize_t i = 0; i < size; ++i)
        if (!read_integer(PyTuple_GetItem(items.ptr(), i), values[static_cast<std::size_t>(i)]))
            return false;
    return true;
}

}  // namespace vescomm::python

// Some casters throw: those of nanobind for optional values, which are noexcept, cannot use them.
namespace nanobind::detail {

template <>
struct type_caster<vescomm::python::Integer> {
    NB_TYPE_CASTER(vescomm::python::Integer, const_name("int"))

    bool from_python(handle source, std::uint32_t, cleanup_list *) noexcept {
        return vescomm::python::read_integer(source.ptr(), value.value);
    }
};

template <typename Size>
requires std::is_same_v<Size, vescomm::python::SizeArgument> ||
    std::is_same_v<Size, vescomm::python::OffsetArgument>
struct type_caster<Size> {
    NB_TYPE_CASTER(Size, const_name(Size::type))

    bool from_python(handle source, std::uint32_t, cleanup_list *) {
        value.value = vescomm::python::read_size(source, Size::name);
        return true;
    }
};

template <typename Member>
requires requires {
    Member::members;
}
struct type_caster<Member> {
    NB_TYPE_CASTER(Member, const_name(Member::type))

    bool from_python(handle source, std::uint32_t, cleanup_list *) {
        value.value =
            vescomm::python::read_member(source, Member::name, Member::type, Member::members);
        return true;
    }
};

template <>
struct type_caster<std::optional<vescomm::python::ElementType>> {
    using Inner = make_caster<vescomm::python::ElementType>;
    NB_TYPE_CASTER(std::optional<vescomm::python::ElementType>, optional_name(Inner::Name))

    bool from_python(handle source, std::uint32_t flags, cleanup_list *cleanup) {
        if (source.is_none()) return true;
        Inner inner;
        inner.from_python(source, flags, cleanup);
        value = inner.value;
        return true;
    }
};

template <>
struct type_caster<vescomm::python::Integers> {
    NB_TYPE_CASTER(vescomm::python::Integers, const_name("collections.abc.Sequence[int]"))

    // Exceptions leave it: nanobind raises them in the caller.
    bool from_python(handle source, std::uint32_t, cleanup_list *) {
        return vescomm::python::read_integers(source.ptr(), value.values);
    }
};

template <>
struct type_caster<std::optional<vescomm::python::Integers>> {
    NB_TYPE_CASTER(std::optional<vescomm::python::Integers>,
                   optional_name(make_caster<vescomm::python::Integers>::Name))

    bool from_python(handle source, std::uint32_t, cleanup_list *) {
        if (source.is_none()) return true;
        vescomm::python::Integers read;
        if (!vescomm::python::read_integers(source.ptr(), read.values)) return false;
        value = std::move(read);
        return true;
    }
};

}  // namespace nanobind::detail
