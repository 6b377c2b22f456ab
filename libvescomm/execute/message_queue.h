// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vescomm::internal {

// The point-to-point messages between this rank and a peer, in one direction, that use the same
// eager buffer one after another.
struct MessageQueue {
    int peer = 0;
    bool receives = false;  // false: this rank sends
    std::uint64_t completed = 0;  // messages
    // Sender: the value that the peer's flag reaches when it has read the last completed message.
    std::uint64_t unread = 0;
};

}  // namespace vescomm::internal
