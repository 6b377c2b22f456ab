// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/handshake.h"
#include "bootstrap/link.h"
#include "bootstrap/network.h"

namespace vescomm::internal {

// Finds a listening process of the job at one of several addresses and joins it.
//
// Addresses are tried concurrently, because some may belong to other networks and be unreachable.
// An address whose connection is refused, ends early or breaks the protocol is tried again until
// the object is destroyed: the process may not have started yet.
//
// Used in the network's thread only.
class HubSearch {
public:
    struct Found {
        std::unique_ptr<Stream> stream;
        SessionKeys keys;
        std::string welcome;  // payload of the welcome
        std::string rest;  // bytes received after the welcome
    };
    struct Events {
        // Called at most once; no other function is called afterwards.
        std::function<void(Found)> found;
        // Called at most once: the search cannot succeed, or the peer has refused.
        std::function<void(const Error &)> failed;
        // Called before a claim is sent, with its connection. Returns the listener of this process
        // for survivors, at the local address.
        std::function<SurvivorListener(const Stream &)> listen;
    };

    struct Limits {
        // An address at which no process listens, answers, or knows the secret is not tried again,
        // and failed() is called when no address is left. Without it, failed() is called when the
        // processes at all addresses are of other jobs.
        bool once = false;
        // Longest time from a connection to an answer. The operating system may accept it long
        // before the process reads from it, for example while the program is loading.
        Clock::duration answer = std::chrono::seconds(60);
    };

    // Network and secret are borrowed.
    HubSearch(Network &network, std::vector<TcpAddress> addresses, std::string_view secret,
              Claim claim, Limits limits, Events events);
    ~HubSearch();

    // Starts attempts that are due, and abandons those that take too long. Returns the time of the
    // next call, a few milliseconds ahead.
    Clock::time_point tick();

    // True: failed() was called because a peer, which is alive, has refused this process.
    bool refused() const { return refused_; }
    // The latest note of an authenticated process that has not welcomed this one yet; empty: none.
    std::string note() const;
    // A sentence for a search that found nothing: the last error at each address.
    std::string trouble() const;

private:
    struct Try;

    void begin(Try &attempt);
    void connected(Try &attempt, std::unique_ptr<Stream> stream, const std::string &why);
    void listen(Try &attempt);
    void read(Try &attempt, std::string_view bytes);
    void give_up(Try &attempt, const std::string &why, bool gone);
    bool any_authenticated() const;
    void fail_if_hopeless();

    Network &network_;
    std::string_view secret_;
    Claim claim_;
    Limits limits_;
    Events events_;
    std::list<Try> tries_;
    bool refused_ = false;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace vescomm::internal
