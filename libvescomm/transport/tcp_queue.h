// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "transport/queued_put.h"

namespace vescomm::internal {

class TcpContext;

// A put that the kernel has not taken completely.
struct TcpPut : QueuedPut {
    TcpPut *next = nullptr;
    TcpContext *context = nullptr;  // nullptr: the goodbye of a communicator that is gone
    std::uint32_t context_id = 0;

    void clear() noexcept {
        QueuedPut::clear();
        context = nullptr;
    }
};

// The puts of one communicator that wait for one connection, in order.
struct TcpQueue {
    TcpContext *context = nullptr;
    TcpPut *first = nullptr;
    TcpPut *last = nullptr;
    TcpPut *open = nullptr;  // a batch that waits for its last part; not in the list
    TcpQueue *next = nullptr;  // next queue that waits for the same connection
    bool waiting = false;
};

}  // namespace vescomm::internal
