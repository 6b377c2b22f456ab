// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/failure.h"
#include "transport/ucx_inbox.h"
#include "transport/ucx_memories.h"
#include "transport/ucx_queue.h"
#include "transport/ucx_shared.h"

namespace vescomm::internal {

// One communicator on a UcxFabric: its memories, its incoming messages, and its queues of puts.
//
// Threads: everything under the mutex of the fabric, except inbox.signalled().
class UcxContext {
public:
    // `peers`: by rank of the communicator, the number of its process on the fabric, or -1. Throws.
    UcxContext(UcxShared &shared, std::uint32_t id, int rank, const std::vector<int> &peers,
               Failure &failure, std::function<void()> on_signal);

    // The rank of a process of the fabric; -1: the process is not in this communicator.
    int rank_of(int process) const noexcept { return ranks_.rank_of(process); }
    int process_of(int rank) const noexcept { return ranks_.process_of(rank); }

    // True if UCX may read or write memory of this communicator, for any peer or for one.
    bool busy() const noexcept;
    bool busy(int peer) const noexcept;

    // The peer has stopped this communicator.
    void take_goodbye(int peer) noexcept;

    // An endpoint has failed. The communicator fails too, unless the peer has said goodbye and
    // nothing was under way from it or to it.
    void lose(const UcxEndpoint &endpoint) noexcept;

    // Fails the communicator: the bytes of a put did not arrive.
    void lose(const UcxMessage &message, const char *reason) noexcept;

    // Fails the communicator because of an invalid message.
    void refuse(const UcxMessage &message, const char *why) noexcept;

    // Fails the communicator because there is no memory to send or receive.
    void run_out() noexcept;

    // A signal has arrived.
    void note() noexcept {
        shared_.signalled = true;
        shared_.note(*this);
    }

    const std::uint32_t id;
    const int rank;
    Failure &failure;
    const std::function<void()> on_signal;
    UcxMemories memories;
    UcxInbox inbox;
    std::vector<std::unique_ptr<UcxQueue>> queues;  // by rank; nullptr: not a peer
    std::vector<bool> left;  // by rank: true if it has said goodbye
    bool has_news = false;  // the context is in the list of news of UcxShared

private:
    UcxShared &shared_;
    const ProcessRanks ranks_;
};

}  // namespace vescomm::internal
