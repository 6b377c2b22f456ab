// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "transport/fabric_contexts.h"
#include "transport/free_list.h"
#include "transport/tcp_context.h"
#include "transport/tcp_queue.h"

namespace vescomm::internal {

// State shared by the connections of one fabric.
struct TcpShared : FabricContexts<TcpContext> {
    // Reports the end of a put to its owner and returns it to the free list.
    void end(TcpPut *put) noexcept {
        if (put->put.pending != nullptr) put->put.pending->fetch_sub(1, std::memory_order_release);
        if (put->uses != nullptr) --*put->uses;
        if (put->context != nullptr) note(*put->context);
        puts.give_back(put);
    }

    Descriptor epoll;
    std::vector<std::byte> staging;  // received bytes whose target is not known yet
    std::vector<std::byte> plain;  // a decrypted record; empty without encryption
    FreeList<TcpPut> puts;
};

}  // namespace vescomm::internal
