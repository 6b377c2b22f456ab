// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vescomm::internal {

// The point-to-point messages from this rank to a peer that use the same eager buffer one after
// another.
struct MessageQueue {
    int peer = 0;
    std::uint64_t completed = 0;  // messages
    // The value that the peer's flag reaches when it has read the last completed message.
    std::uint64_t unread = 0;
};

}  // namespace vescomm::internal
