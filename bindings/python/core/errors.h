// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Statuses of the library become exceptions of the module vescomm.errors.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "vescomm/vescomm.h"

namespace vescomm::python {

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

}  // namespace vescomm::python
