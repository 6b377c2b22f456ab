// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/handshake.h"
#include "bootstrap/network.h"

namespace vescomm::internal {

// Accepts connections from other processes of the job. Any process may connect; a connection is
// handed on only after its peer has authenticated itself with the secret.
//
// A connection whose first bytes have arrived before it is accepted, as under a flood, is judged at
// once. Others are pending: each costs one socket and less than a kilobyte. At most `max_pending`
// connections are pending, each for a few seconds. When the limit is reached, the acceptor closes
// the connection that has been silent for the longest time; if all have sent their hello, it closes
// the oldest. A process whose connection is closed after its hello reconnects with the cookie of
// the reply and needs no second round trip (handshake.h). A flood of connections therefore delays a
// process but does not keep it out.
//
// Used in the network's thread only.
class Acceptor {
public:
    struct Joined {
        Claim claim;
        std::unique_ptr<Stream> stream;
        SessionKeys keys;
        std::string rest;  // bytes received after the join
    };
    using Admit = std::function<void(Joined)>;

    static constexpr std::size_t max_pending = 256;

    // Network and secret are borrowed.
    Acceptor(Network &network, std::string_view secret, Admit admit);
    ~Acceptor();

    // Listens at an address, or with a socket that listens already. Throws Error.
    void listen(const TcpAddress &address);
    void listen_with(int descriptor);
    // See Listener::narrow(). There is one listener.
    bool narrow(const std::string &host) { return listeners_.front()->narrow(host); }
    // Stops listening and closes all pending connections.
    void close();
    // The address of the first listener; empty if nothing listens.
    TcpAddress address() const;

    // Closes connections that have been pending for too long. Must be called regularly.
    void tidy();
    // The time at which accepting began to fail because the process has no free descriptor; zero if
    // accepting works.
    Clock::time_point starved_since() const { return starved_since_; }
    // Number of peers that spoke the protocol and closed their connection before they joined, as
    // one with another secret does.
    int abandoned() const { return abandoned_; }

private:
    struct Pending;
    using Place = std::list<std::shared_ptr<Pending>>::iterator;

    void accept(std::unique_ptr<Stream> stream);
    void read(const std::shared_ptr<Pending> &pending, std::string_view bytes);
    void drop(const std::shared_ptr<Pending> &pending);
    void drop_oldest();
    std::size_t pending() const { return silent_.size() + greeted_.size(); }

    Network &network_;
    std::string_view secret_;
    Cookies cookies_;
    Admit admit_;
    std::vector<std::unique_ptr<Listener>> listeners_;
    // Pending connections before and after their hello, oldest first.
    std::list<std::shared_ptr<Pending>> silent_, greeted_;
    Clock::time_point starved_since_{};
    int abandoned_ = 0;
};

}  // namespace vescomm::internal
