// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vescomm::internal {

// Sent by each rank when the ranks connect, in one all-gather of the control plane.
struct PeerInfo {
    std::string node;  // name of the node
    std::string machine;  // machine_text()
    std::string algorithms;  // VESCOMM_ALGORITHM
    std::string reproducible;  // yes or no
    std::string pool;  // offered_pool_bytes()
    std::string creator;  // Session::Creation::creator()

    // Every part ends with a zero byte. No part contains one.
    std::string text() const;
    // `text` comes from the network. Missing parts stay empty.
    static PeerInfo parse(std::string_view text);

    bool operator==(const PeerInfo &) const = default;
};

}  // namespace vescomm::internal
