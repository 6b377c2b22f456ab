// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <map>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/descriptor.h"
#include "base/failure.h"
#include "bootstrap/tcp_address.h"
#include "transport/tcp_handshake.h"

namespace vescomm::internal {

// The address of a rank.
struct TcpPeer {
    bool wanted = false;  // a connection to it is needed
    TcpAddress address;
    TcpSession session{};
};

// An established connection that both ends have authenticated.
struct TcpEstablished {
    Descriptor socket;  // closed: there is no connection
    TcpKeys keys;
};

// Establishes the connections of this rank to its peers: it connects to peers of lower rank, and
// accepts peers of higher rank.
//
// Any process may connect meanwhile. A connection whose first 108 bytes are not an authentic hello
// is closed. A connection that sends fewer bytes costs a socket and these bytes. There are at most
// some hundred such connections, each for at most some seconds. Beyond that, the oldest connection
// of the address that has most of them is closed. A peer sends its hello with the last packet that
// opens the connection, so it is hardly ever among them. Once its hello has arrived, no other
// process can take its slot. Failed connections are tried again until the deadline.
class TcpMeeting {
public:
    TcpMeeting(const FrameKey &key, int rank, bool encrypted);
    ~TcpMeeting();
    TcpMeeting(const TcpMeeting &) = delete;
    TcpMeeting &operator=(const TcpMeeting &) = delete;

    // Listens on a free port of one numeric address. Throws.
    void listen(const std::string &interface);

    const TcpSession &session() const { return session_; }
    std::uint16_t port() const { return port_; }

    // Blocking. Throws TIMEOUT naming the missing ranks, or the cause of `failure`.
    std::vector<TcpEstablished> meet(std::vector<TcpPeer> peers, const Failure &failure,
                                     Deadline deadline);

private:
    struct Incoming;
    struct Attempt;
    struct Outgoing;

    bool done() const;
    void connect_some(Clock::time_point now);
    void start_attempt(int peer, Outgoing &outgoing);
    bool advance(Attempt &attempt, Outgoing &outgoing);
    void accept_some();
    void take(Descriptor socket, const SocketAddress &from);
    bool evict_unauthenticated();
    void advance_unauthenticated(Clock::time_point now);
    bool advance(Incoming &incoming);
    bool has_capacity(std::uint32_t from);
    void wait();
    std::string missing() const;

    const FrameKey key_;
    const int rank_;
    const bool encrypted_;
    const TcpSession session_;
    Descriptor listener_;
    std::uint16_t port_ = 0;
    std::vector<TcpPeer> peers_;
    std::vector<TcpEstablished> established_;
    std::vector<Outgoing> outgoing_;  // by rank
    std::map<std::string, std::list<Incoming>> unauthenticated_;  // by address; oldest first
    std::size_t unauthenticated_count_ = 0;
    std::size_t max_unauthenticated_;
    std::list<Incoming> authenticated_;  // connections with an authentic hello
    bool paused_ = false;  // there is no free descriptor for accepting
    std::string last_problem_;
};

}  // namespace vescomm::internal
