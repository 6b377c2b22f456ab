// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace vescomm::formats {

// Thrown when bytes from a file, or a user's input, cannot be used. The text is one sentence: what
// failed, where, the value, what to do.
struct InputError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace vescomm::formats
