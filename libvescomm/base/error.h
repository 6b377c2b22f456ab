// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

#include "vescomm/vescomm.h"

namespace vescomm::internal {

// An error of the user or the network: a status for the program, and one complete sentence for
// people (what failed, where, the values, what to do). Thrown by set-up code only. api/guard.h
// translates it into a status.
struct Error : std::runtime_error {
    Error(vescomm_status_t status, const std::string &text)
        : std::runtime_error(text), status(status) {}

    vescomm_status_t status;
};

}  // namespace vescomm::internal
