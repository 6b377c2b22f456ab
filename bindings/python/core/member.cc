// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Integer arguments that are members of enumerations, and numbers of bytes.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "convert.h"
#include "integer.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

struct Enumeration {
    const char *type;  // the name of the class in Python
    PyObject *members;  // the class
};

// Kept: nothing can be imported while the interpreter ends.
const std::array<Enumeration, 5> &enumerations() {
    static const auto *const all = [] {
        const nb::module_ types = nb::module_::import_("vescomm.types");
        const auto of = [&types](const char *type) {
            const char *const name = std::strchr(type, '.') + 1;
            return Enumeration{type, nb::object(types.attr(name)).release().ptr()};
        };
        return new std::array<Enumeration, 5>{of("vescomm.Op"), of("vescomm.Type"),
                                              of("vescomm.Sharing"), of("vescomm.Mode"),
                                              of("vescomm.Work")};
    }();
    return *all;
}

std::string expected(const char *type, const char *members) {
    if (std::strcmp(type, "int") == 0) return "an integer";
    return std::string("a member of ") + members;
}

}  // namespace

void refuse_other_members(nb::handle object, const std::string &name, const char *type,
                          const char *members) {
    if (PyLong_CheckExact(object.ptr())) return;
    const bool is_integer = std::strcmp(type, "int") == 0;
    if (PyBool_Check(object.ptr()) && !is_integer)
        refuse_type(name + " is a bool; give " + expected(type, members));
    const auto its = std::ranges::find(enumerations(), object.type().ptr(), &Enumeration::members);
    if (its == enumerations().end() || std::strcmp(its->type, type) == 0) return;
    refuse_type(name + " is " + std::string(its->type) + "." +
                nb::str(object.attr("name")).c_str() + "; give " + expected(type, members));
}

std::int64_t read_member(nb::handle object, const char *name, const char *type,
                         const char *members) {
    std::int64_t value = 0;
    if (!read_integer(object.ptr(), value)) [[unlikely]] {
        // Raises the sentence of an integer that is too large.
        if (PyLong_Check(object.ptr())) return read_integer(object, Place{{}, 0, name});
        const nb::str type_name = nb::type_name(object.type());
        refuse_type(std::string(name) + " is a " + type_name.c_str() + "; give " +
                    expected(type, members));
    }
    refuse_other_members(object, name, type, members);
    return value;
}

std::int64_t read_size(nb::handle object, const char *name) {
    const std::int64_t value = read_integer(object, Place{{}, 0, name});
    if (value < 0)
        refuse(std::string(name) + " is " + std::to_string(value) + "; give 0 or more bytes");
    return value;
}

}  // namespace vescomm::python
