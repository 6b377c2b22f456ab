// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "transport/fabric_contexts.h"
#include "transport/pool.h"
#include "transport/tcp_context.h"
#include "transport/tcp_queue.h"

namespace vescomm {

// State that the connections of one fabric share.
struct TcpHub : FabricContexts<TcpContext> {
    // Tells the owner that a put is over, and takes it back.
    void end(TcpPut *put) noexcept {
        if (put->put.pending != nullptr) put->put.pending->fetch_sub(1, std::memory_order_release);
        if (put->uses != nullptr) --*put->uses;
        if (put->context != nullptr) note(*put->context);
        puts.give_back(put);
    }

    Descriptor epoll;
    std::vector<std::byte> staging;  // for what a connection receives before its place is known
    std::vector<std::byte> plain;  // for a record that was decrypted; empty where none are
    Pool<TcpPut> puts;
};

}  // namespace vescomm
