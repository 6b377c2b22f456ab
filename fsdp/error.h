// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "vescomm/vescomm.h"

namespace vescomm::fsdp {

// An error with a status for the program and one sentence for people. api/guard.h translates it.
struct Failure : std::runtime_error {
    Failure(vescomm_status_t status, const std::string &text)
        : std::runtime_error(text), status(status) {}

    vescomm_status_t status;
};

// Throws a wrong argument.
template <typename... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> format, Values &&...values) {
    throw Failure(VESCOMM_ERROR_INVALID_ARGUMENT,
                  fmt::format(format, std::forward<Values>(values)...));
}

}  // namespace vescomm::fsdp
