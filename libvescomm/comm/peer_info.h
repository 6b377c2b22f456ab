// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vescomm {

// What each rank tells the others when they meet, in one round of the control plane.
struct PeerInfo {
    std::string node;  // its name
    std::string machine;  // machine_text()
    std::string algorithms;  // VESCOMM_ALGORITHM
    std::string reproducible;  // yes or no

    // Each part ends with a zero byte, which no part contains.
    std::string text() const;
    // It comes from the network: what is missing stays empty.
    static PeerInfo parse(std::string_view text);

    bool operator==(const PeerInfo &) const = default;
};

}  // namespace vescomm
