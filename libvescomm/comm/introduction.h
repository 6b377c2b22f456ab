// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vescomm {

// What each rank tells the others when they meet, in one round of the control plane.
struct Introduction {
    std::string node;  // its name
    std::string machine;  // tell_machine()
    std::string algorithms;  // VESCOMM_ALGORITHM
    std::string reproducible;  // yes or no

    // Each part ends with a zero byte, which no part contains.
    std::string text() const;
    // It comes from the network: what is missing stays empty.
    static Introduction parse(std::string_view text);

    bool operator==(const Introduction &) const = default;
};

}  // namespace vescomm
