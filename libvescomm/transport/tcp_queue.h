// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "transport/transport.h"

namespace vescomm {

class TcpContext;

// A put that the kernel has not taken in full.
struct TcpPut {
    TcpPut *next = nullptr;
    TcpContext *context = nullptr;  // nullptr: a goodbye of a communicator that is gone
    std::uint32_t context_id = 0;
    Put put;
    std::uint64_t sent = 0;  // bytes that are in messages
    std::uint32_t *uses = nullptr;  // of the target memory; nullptr: no bytes
    // Small parts, one after another (put_batch.h). The room is kept from put to put.
    std::vector<std::byte> batch;

    void clear() noexcept {
        context = nullptr;
        put = {};
        sent = 0;
        uses = nullptr;
        batch.clear();
    }
    bool is_batch() const noexcept { return !batch.empty(); }
    std::uint64_t bytes() const noexcept { return is_batch() ? batch.size() : put.bytes; }
    const std::byte *from() const noexcept { return is_batch() ? batch.data() : put.from; }
};

// The puts of one communicator that wait for one connection, in order.
struct TcpQueue {
    TcpContext *context = nullptr;
    TcpPut *first = nullptr;
    TcpPut *last = nullptr;
    TcpPut *open = nullptr;  // a batch that waits for its last part; not in the list
    TcpQueue *next = nullptr;  // that waits for the same connection
    bool waiting = false;
};

}  // namespace vescomm
