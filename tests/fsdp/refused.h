// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "fsdp/training.h"

namespace vescomm::fsdp::testing {

// The sentence with which a call refuses its arguments; "no error" if it accepts them.
inline std::string sentence_of(const std::function<void()> &call) {
    try {
        call();
    } catch (const Error &error) {
        EXPECT_EQ(error.status(), VESCOMM_ERROR_INVALID_ARGUMENT) << error.what();
        return error.what();
    }
    return "no error";
}

}  // namespace vescomm::fsdp::testing
