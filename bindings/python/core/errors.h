// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Statuses of the library become exceptions of the module vescomm.errors.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

#include "vescomm/vescomm.h"

namespace vescomm::python {

// Called once, by the module: imports vescomm.errors.
void load_errors();

// Raises the exception of a status. `sentence` explains it. The caller holds the GIL.
[[noreturn]] void raise(vescomm_status_t status, const std::string &sentence);

// Raises the exception of an error, with the sentence of the library. An exception of Python that
// is set already, by a signal handler that ran within a wait, goes first.
[[noreturn]] void raise_last(vescomm_status_t status);

inline void check(vescomm_status_t status) {
    if (status < 0) [[unlikely]]
        raise_last(status);
}

[[noreturn]] inline void refuse(const std::string &sentence) {
    raise(VESCOMM_ERROR_INVALID_ARGUMENT, sentence);
}
// The same because of `cause`, an exception of the caller's object.
[[noreturn]] void refuse_because(const std::string &sentence, nanobind::python_error &cause);

// Raises TypeError: a value has the wrong type.
[[noreturn]] void refuse_type(const std::string &sentence);

// True for exceptions of vescomm.errors.
bool is_of_library(const nanobind::python_error &error) noexcept;

// True for exceptions that are no errors of an argument, although reading it has raised them:
// KeyboardInterrupt, SystemExit and their like, and MemoryError.
bool must_pass(const nanobind::python_error &error) noexcept;

// A text of the library for Python. Bytes that are not UTF-8, such as those of a path or of the
// name of a tensor in a file, become backslash escapes.
nanobind::str to_str(std::string_view text);

}  // namespace vescomm::python
