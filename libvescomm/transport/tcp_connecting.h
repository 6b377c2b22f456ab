// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <list>
#include <vector>

#include "base/deadline.h"
#include "transport/tcp_meeting_io.h"

namespace vescomm::internal {

// The connections of a meeting that this rank makes: to the peers of lower rank. A failed attempt
// is followed by another.
class TcpConnecting {
public:
    explicit TcpConnecting(const TcpSelf &self);
    ~TcpConnecting();

    // Starts attempts, and advances those under way.
    void advance(TcpRanks &ranks, Clock::time_point now);
    // Adds what the attempts wait for.
    void poll_for(std::vector<pollfd> &entries) const;

private:
    struct Attempt;
    struct Outgoing;

    void start_attempt(TcpRanks &ranks, int peer, Outgoing &outgoing);
    bool advance(Attempt &attempt, Outgoing &outgoing, std::string &problem);

    const TcpSelf &self_;
    std::vector<Outgoing> outgoing_;  // by rank
};

}  // namespace vescomm::internal
