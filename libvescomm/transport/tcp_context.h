// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/failure.h"
#include "transport/fabric_contexts.h"
#include "transport/put_memories.h"
#include "transport/tcp_inbox.h"
#include "transport/tcp_queue.h"

namespace vescomm::internal {

// One communicator on a TcpFabric: its memories, its incoming messages, and its queues of puts.
//
// Threads: everything under the mutex of the fabric, except inbox.signalled().
class TcpContext {
public:
    // `peers`: by rank of the communicator, the number of its process on the fabric, or -1.
    TcpContext(std::uint32_t id, int rank, const std::vector<int> &peers, Failure &failure,
               std::function<void()> on_signal);

    // The rank of a process of the fabric; -1: the process is not in this communicator.
    int rank_of(int process) const noexcept { return ranks_.rank_of(process); }
    int process_of(int rank) const noexcept { return ranks_.process_of(rank); }

    // A connection has ended. The communicator fails unless the peer has said goodbye and nothing
    // was under way from it (`busy`) or to it.
    void lose(int process, bool busy, const std::string &why) noexcept;

    const std::uint32_t id;
    const int rank;
    Failure &failure;
    const std::function<void()> on_signal;
    PutMemories memories;
    TcpInbox inbox;
    std::vector<TcpQueue> queues;  // by rank
    std::vector<bool> left;  // by rank: true if it has said goodbye
    bool has_news = false;  // the context is in the fabric's list of news

private:
    const ProcessRanks ranks_;
};

}  // namespace vescomm::internal
