// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/descriptor.h"
#include "bootstrap/event_loop.h"
#include "bootstrap/handshake.h"

namespace vescomm {

// Where rank 0 lets the others in. Anyone may connect; only who knows the secret is announced.
//
// A guest who has not proved itself costs a socket and less than a kilobyte. There are at most
// `guests` of them at a time, the oldest making room for the newest, and none stays for longer than
// a few seconds. So strays, scanners and the slow change nothing but the order of retries.
//
// Used only in the thread of its event loop, but for its making.
class TcpDoor {
public:
    struct Visitor {
        Claim claim;
        Descriptor socket;
        Session session;
        std::string rest;  // bytes that came after the join
    };
    using Announce = std::function<void(Visitor)>;

    // The secret is borrowed.
    TcpDoor(EventLoop &loop, std::vector<Descriptor> listeners, std::string_view secret,
            std::size_t guests, Announce announce);
    ~TcpDoor();

    void open();
    // Sends everyone away who has been at the door for too long. Called now and then.
    void tidy(Clock::time_point now);
    void close();

private:
    struct Listener;
    struct Guest;

    void wait_for_guests(const std::shared_ptr<Listener> &listener);
    void accept_some(const std::shared_ptr<Listener> &listener);
    void receive(Descriptor socket);
    void wait_for_words(const std::shared_ptr<Guest> &guest);
    void hear(const std::shared_ptr<Guest> &guest);
    void send_away(const std::shared_ptr<Guest> &guest);

    EventLoop &loop_;
    std::vector<std::shared_ptr<Listener>> listeners_;
    std::string_view secret_;
    std::size_t most_guests_;
    Announce announce_;
    std::list<std::shared_ptr<Guest>> guests_;  // the oldest first
};

}  // namespace vescomm
