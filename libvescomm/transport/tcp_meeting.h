// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/failure.h"
#include "transport/tcp_accepting.h"
#include "transport/tcp_connecting.h"

namespace vescomm::internal {

// Establishes the connections of this rank to its peers: it connects to peers of lower rank, and
// accepts peers of higher rank. Failed connections are tried again until the deadline.
class TcpMeeting {
public:
    TcpMeeting(const FrameKey &key, int rank, bool encrypted);
    TcpMeeting(const TcpMeeting &) = delete;
    TcpMeeting &operator=(const TcpMeeting &) = delete;

    // Listens on a free port of one numeric address. Throws.
    void listen(const std::string &interface) { accepting_.listen(interface); }

    const TcpSession &session() const { return self_.session; }
    std::uint16_t port() const { return accepting_.port(); }

    // Blocking. Throws TIMEOUT naming the missing ranks, or the cause of `failure`.
    std::vector<TcpEstablished> meet(std::vector<TcpPeer> peers, const Failure &failure,
                                     Deadline deadline);

private:
    bool done() const;
    std::string missing() const;
    void wait() const;

    const TcpSelf self_;
    TcpRanks ranks_;
    TcpConnecting connecting_;
    TcpAccepting accepting_;
};

}  // namespace vescomm::internal
