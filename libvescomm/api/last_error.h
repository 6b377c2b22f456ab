// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vescomm {

// Keeps the sentence that vescomm_last_error() returns to the calling thread. When there is no
// memory for it, a constant sentence that says so takes its place.
void set_last_error(const std::string &sentence) noexcept;

// The same without any allocation: `sentence` must live for ever.
void set_last_error_constant(const char *sentence) noexcept;

}  // namespace vescomm
