// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <map>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "transport/tcp_meeting_io.h"

namespace vescomm::internal {

// The connections of a meeting that this rank accepts: from the peers of higher rank.
//
// Any process may connect meanwhile. A connection whose first 108 bytes are not an authentic hello
// is closed. A connection that sends fewer bytes costs a socket and these bytes. There are at most
// some hundred such connections, each for at most some seconds. Beyond that, the oldest connection
// of the address that has most of them is closed. A peer sends its hello with the last packet that
// opens the connection, so it is hardly ever among them. Once its hello has arrived, no other
// process can take its slot.
class TcpAccepting {
public:
    explicit TcpAccepting(const TcpSelf &self);
    ~TcpAccepting();

    // Listens on a free port of one numeric address. Throws.
    void listen(const std::string &interface);
    std::uint16_t port() const { return port_; }

    // Accepts connections, and advances those that are open.
    void advance(TcpRanks &ranks, Clock::time_point now);
    // Adds what the listener and the connections wait for.
    void poll_for(std::vector<pollfd> &entries) const;
    // Closes the listener, and all connections that are not established.
    void close();

private:
    struct Incoming;

    void accept_some(TcpRanks &ranks);
    void take(TcpRanks &ranks, Descriptor socket, const SocketAddress &from);
    bool evict_unauthenticated();
    void advance_unauthenticated(TcpRanks &ranks, Clock::time_point now);
    bool advance(TcpRanks &ranks, Incoming &incoming);
    bool has_capacity(const TcpRanks &ranks, std::uint32_t from) const;

    const TcpSelf &self_;
    Descriptor listener_;
    std::uint16_t port_ = 0;
    std::map<std::string, std::list<Incoming>> unauthenticated_;  // by address; oldest first
    std::size_t unauthenticated_count_ = 0;
    std::size_t max_unauthenticated_;
    std::list<Incoming> authenticated_;  // connections with an authentic hello
    bool paused_ = false;  // there is no free descriptor for accepting
};

}  // namespace vescomm::internal
