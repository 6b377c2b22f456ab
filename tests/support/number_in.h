// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

namespace vescomm::testing_support {

// The number in a variable of the environment that makes a test longer, such as
// VESCOMM_TEST_REPETITIONS.
inline int number_in(const char *variable, int otherwise) {
    const char *text = std::getenv(variable);
    return text != nullptr ? std::atoi(text) : otherwise;
}

}  // namespace vescomm::testing_support
