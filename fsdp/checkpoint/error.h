// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

#include "vescomm/vescomm.h"

namespace vescomm::fsdp::checkpoint {

// An error of a save, a load or an export: a status for the program, and one complete sentence for
// people (what failed, where, the values, what to do).
struct Error : std::runtime_error {
    Error(vescomm_status_t status, const std::string &text)
        : std::runtime_error(text), status(status) {}

    vescomm_status_t status;
};

}  // namespace vescomm::fsdp::checkpoint
