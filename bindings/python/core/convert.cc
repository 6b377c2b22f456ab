// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "convert.h"

#include <nanobind/stl/string.h>

#include "errors.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

[[noreturn]] void refuse_value(nb::handle value, const std::string &place, const char *expected) {
    refuse_type(place + " is of type " + type_name_of(value) + "; give " + expected);
}

// The digits of an integer, which may have too many for str().
std::string digits_of(nb::handle integer) {
    const nb::object digits = nb::steal(PyObject_Str(integer.ptr()));
    if (digits.is_valid()) return nb::borrow<nb::str>(digits).c_str();
    PyErr_Clear();
    return "an integer of thousands of digits";
}

std::int64_t read_integer_at(nb::handle value, const std::string &place) {
    const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
    if (!index.is_valid()) {
        nb::python_error error;
        if (!error.matches(PyExc_TypeError)) throw error;
        refuse_value(value, place, "an integer");
    }
    const long long read = PyLong_AsLongLong(index.ptr());
    if (read == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        refuse(place + " is " + digits_of(index) + "; it must be an integer of 64 bits");
    }
    return read;
}

}  // namespace

const char *c_string(const std::string &text, std::string_view name) {
    const std::size_t nul = text.find('\0');
    if (nul != std::string::npos) [[unlikely]]
        refuse(std::string(name) + " has a NUL character at byte " + std::to_string(nul) +
               ", where the library would cut it; give a text without one");
    return text.c_str();
}

const char *c_string(const std::optional<std::string> &text, std::string_view name) {
    return text ? c_string(*text, name) : nullptr;
}

std::string Place::text() const {
    if (list.empty()) return member;
    const std::string item = std::string(list) + "[" + std::to_string(index) + "]";
    return member == nullptr ? item : item + "." + member;
}

nb::object member_of(nb::handle object, const Place &place) {
    PyObject *const value = PyObject_GetAttrString(object.ptr(), place.member);
    if (value != nullptr) return nb::steal(value);
    nb::python_error error;
    if (!error.matches(PyExc_AttributeError)) throw error;
    refuse_type(Place{place.list, place.index}.text() + " is of type " + type_name_of(object) +
                ", which has no member " + place.member);
}

std::string read_text(nb::handle value, const Place &place) {
    if (!PyUnicode_Check(value.ptr())) refuse_value(value, place.text(), "a str");
    Py_ssize_t size = 0;
    const char *const utf8 = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
    if (utf8 == nullptr) {
        nb::python_error error;
        if (must_pass(error)) throw error;
        refuse_because(
            place.text() + " has a surrogate without its other half, which UTF-8 has not", error);
    }
    std::string text(utf8, static_cast<std::size_t>(size));
    if (text.find('\0') != std::string::npos) c_string(text, place.text());
    return text;
}

std::int64_t read_integer(nb::handle value, const Place &place) {
    std::int64_t read = 0;
    if (PyLong_Check(value.ptr()) && read_integer(value.ptr(), read)) return read;
    return read_integer_at(value, place.text());
}

std::int32_t read_small(nb::handle value, const Place &place) {
    const std::int64_t read = read_integer(value, place);
    if (read == static_cast<std::int32_t>(read)) return static_cast<std::int32_t>(read);
    return Integer{read}.small(place.text().c_str());
}

double read_number(nb::handle value, const Place &place) {
    const double number = PyFloat_AsDouble(value.ptr());
    if (number != -1 || !PyErr_Occurred()) return number;
    nb::python_error error;
    if (error.matches(PyExc_OverflowError))
        refuse(place.text() + " is " + digits_of(value) + ", which is too large for a float");
    if (!error.matches(PyExc_TypeError)) throw error;
    refuse_value(value, place.text(), "a number");
}

Integers read_integers(nb::handle value, const Place &place) {
    Integers read;
    if (PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr()))
        refuse_value(value, place.text(), "a sequence of integers");
    // __index__() of an element may change a list. A tuple stays as it is.
    const nb::object items = nb::steal(PySequence_Tuple(value.ptr()));
    if (!items.is_valid()) {
        nb::python_error error;
        if (!error.matches(PyExc_TypeError)) throw error;
        refuse_value(value, place.text(), "a sequence of integers");
    }
    const Py_ssize_t size = PyTuple_Size(items.ptr());
    read.values.resize(static_cast<std::size_t>(size));
    for (Py_ssize_t i = 0; i < size; ++i) {
        const nb::handle item = PyTuple_GetItem(items.ptr(), i);
        std::int64_t &to = read.values[static_cast<std::size_t>(i)];
        if (PyLong_Check(item.ptr()) && read_integer(item.ptr(), to)) continue;
        to = read_integer_at(item, place.text() + "[" + std::to_string(i) + "]");
    }
    return read;
}

std::string type_name_of(nb::handle value) {
    return nb::cast<std::string>(value.type().attr("__name__"));
}

}  // namespace vescomm::python
