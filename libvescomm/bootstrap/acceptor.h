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

namespace vescomm {

// Lets other processes of the job connect. Anyone may connect; only a process that knows the secret
// is handed on.
//
// A pending connection costs a socket and less than a kilobyte. There are at most `max_pending` of
// them, and none stays longer than a few seconds. Where there are too many, the one is closed that
// has been silent for the longest time; when all have said hello, the oldest. A process that is
// closed out after its hello comes back with the cookie of the reply, and needs no second round
// trip (handshake.h): floods of connections delay it, and do not keep it out.
//
// Used in the network's thread only.
class Acceptor {
public:
    struct Joined {
        Claim claim;
        std::unique_ptr<Stream> stream;
        SessionKeys keys;
        std::string rest;  // bytes that came after the join
    };
    using Admit = std::function<void(Joined)>;

    static constexpr std::size_t max_pending = 256;

    // Network and secret are borrowed.
    Acceptor(Network &network, std::string_view secret, Admit admit);
    ~Acceptor();

    // Listens at an address, or with a socket that listens already. Throws Error.
    void listen(const TcpAddress &address);
    void listen_with(int descriptor);
    // No more connections are accepted, and pending ones are closed.
    void close();
    // The address of the first listener; none: nothing listens.
    TcpAddress address() const;

    // Closes connections that have been pending for too long. Called now and then.
    void tidy();
    // Since when no connection can be accepted for want of descriptors; zero: it can.
    Clock::time_point starved_since() const { return starved_since_; }

private:
    struct Pending;
    using Place = std::list<std::shared_ptr<Pending>>::iterator;

    void accept(std::unique_ptr<Stream> stream);
    void read(const std::shared_ptr<Pending> &pending, std::string_view bytes);
    void drop(const std::shared_ptr<Pending> &pending);
    void make_room();
    std::size_t pending() const { return silent_.size() + greeted_.size(); }

    Network &network_;
    std::string_view secret_;
    Cookies cookies_;
    Admit admit_;
    std::vector<std::unique_ptr<Listener>> listeners_;
    // Oldest first: those that have not said hello, and those that have.
    std::list<std::shared_ptr<Pending>> silent_, greeted_;
    Clock::time_point starved_since_{};
};

}  // namespace vescomm
