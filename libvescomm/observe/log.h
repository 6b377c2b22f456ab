// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "vescomm/vescomm.h"

namespace vescomm {

enum class LogLevel : int { error = 0, warn, info, debug };

// What is logged: "LEVEL" or "LEVEL,AREA:LEVEL,...", as in VESCOMM_LOG=warn,transport:debug. Throws
// Error(INVALID_ARGUMENT) naming the part that is neither.
void set_log_filter(std::string_view filter);

bool log_enabled(LogLevel level, std::string_view area) noexcept;

// One line: "vescomm <level> <rank>/<ranks> <area>: <text>", to the caller's sink or to standard
// error. Lower case, values after a space, the cause and not a guess. Whoever first knows an error
// says it; nobody repeats it.
void log(LogLevel level, std::string_view area, int rank, int ranks,
         const std::string &text) noexcept;

// nullptr: standard error again.
void set_log_sink(vescomm_log_function_t sink, void *context) noexcept;

}  // namespace vescomm
