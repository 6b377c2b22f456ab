// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "vescomm/vescomm.h"

namespace vescomm::internal {

enum class LogLevel : int { error = 0, warn, info, debug };

// Sets the levels that are logged: "LEVEL" or "LEVEL,AREA:LEVEL,...", as in
// VESCOMM_LOG=warn,transport:debug. Throws Error(INVALID_ARGUMENT) naming a malformed part; the
// levels are unchanged then.
void set_log_filter(std::string_view filter);

bool log_enabled(LogLevel level, std::string_view area) noexcept;

// Writes the line "vescomm <level> <rank>/<ranks> <area>: <text>" to the caller's sink or to
// standard error. Style: lower case, values after a space, the cause and not a guess. The function
// that detects an error logs it; its callers do not log it again.
void log(LogLevel level, std::string_view area, int rank, int ranks,
         const std::string &text) noexcept;

// Sends log lines to `sink`; nullptr: to standard error.
void set_log_sink(vescomm_log_function_t sink, void *context) noexcept;

}  // namespace vescomm::internal
