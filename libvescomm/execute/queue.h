// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vescomm {

// The messages from this rank to a peer, or from the peer to this rank, that pass through one slot
// of the eager_buffers, one after another.
struct Queue {
    int peer = 0;
    bool receives = false;
    std::uint64_t settled = 0;  // messages
    // Of a sender: what the peer's flag says when it has read the last one that is settled.
    std::uint64_t unread = 0;
};

}  // namespace vescomm
