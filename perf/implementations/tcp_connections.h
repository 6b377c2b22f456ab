// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Plain TCP connections between all pairs of ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "perf/worker/serve.h"

namespace vescomm::perf {

// The data exchanged between this rank and a peer.
struct Passing {
    const std::byte *from = nullptr;
    std::size_t to_send = 0;  // bytes
    std::byte *to = nullptr;
    std::size_t to_receive = 0;  // bytes
};

class TcpConnections {
public:
    // Connects to all ranks, which find each other in the folder of their job. Collective.
    explicit TcpConnections(const Worker &worker);
    ~TcpConnections();
    TcpConnections(const TcpConnections &) = delete;
    TcpConnections &operator=(const TcpConnections &) = delete;

    // Sends to and receives from all peers at once. `passing` is indexed by rank; this rank's entry
    // is ignored. After each pass over all connections, `arrived` is called with the number of
    // bytes received from every peer.
    void exchange(
        std::vector<Passing> passing,
        const std::function<void(std::size_t)> &arrived = [](std::size_t) {});

private:
    bool pass(int peer, Passing &passing);
    void wait(const std::vector<Passing> &passing) const;

    int rank_;
    bool crowded_;
    std::vector<int> sockets_;  // by rank; -1 for this rank
};

}  // namespace vescomm::perf
