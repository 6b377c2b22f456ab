// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Texts for the library, and values within arguments: nanobind checks the types of arguments, but
// not those of their items and members.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "integer.h"

namespace vescomm::python {

// A text for the library, which reads it until the first NUL. Refuses a text that holds one: what
// follows, such as the rest of a secret, would be ignored. `name`: of the parameter.
const char *c_string(const std::string &text, std::string_view name);
// nullptr: none.
const char *c_string(const std::optional<std::string> &text, std::string_view name);

// A value within an argument: tensors[3].shape, or a member of options.
struct Place {
    std::string_view list;  // name of the list; empty: the value is in none
    std::size_t index = 0;
    const char *member = nullptr;  // null: the item itself

    std::string text() const;
};

// Readers of such values. They raise TypeError if a value has the wrong type, and
// InvalidArgumentError if it is too large or a text that the library cannot have.
nanobind::object member_of(nanobind::handle object, const Place &place);
std::string read_text(nanobind::handle value, const Place &place);
std::int64_t read_integer(nanobind::handle value, const Place &place);
std::int32_t read_small(nanobind::handle value, const Place &place);
double read_number(nanobind::handle value, const Place &place);
Integers read_integers(nanobind::handle value, const Place &place);

// Name of the type of a value, for sentences.
std::string type_name_of(nanobind::handle value);

}  // namespace vescomm::python
