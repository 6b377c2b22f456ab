// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/handshake.h"
#include "bootstrap/link.h"
#include "bootstrap/network.h"

namespace vescomm {

// Finds a listening process of the job at one of several addresses and joins it.
//
// Addresses are tried side by side, since some of them may belong to other networks and lead
// nowhere. Those that refuse, vanish or talk nonsense are tried again until the object is
// destroyed: the process may not have started yet.
//
// Used in the network's thread only.
class HubSearch {
public:
    struct Found {
        std::unique_ptr<Stream> stream;
        SessionKeys keys;
        std::string welcome;  // its payload
        std::string rest;  // bytes that came after the welcome
    };
    struct Events {
        // Called at most once, and nothing else afterwards.
        std::function<void(Found)> found;
        // There is no hope, or the other end has refused: called at most once.
        std::function<void(const Error &)> failed;
        // Connected, before the claim is sent: the port on which this process listens at that end.
        std::function<std::uint16_t(const TcpAddress &local)> listen;
    };

    // Network and secret are borrowed. `once`: an address at which nobody listens or answers is not
    // tried again, and failed() is called when that is all of them.
    HubSearch(Network &network, std::vector<TcpAddress> addresses, std::string_view secret,
              Claim claim, bool once, Events events);
    ~HubSearch();

    // Starts attempts that are due, and gives up those that take too long. Called every few
    // milliseconds; returns when to call it next.
    Clock::time_point tick();

    // A sentence for a search that ended without result: the last trouble at each address.
    std::string trouble() const;

private:
    struct Try;

    void begin(Try &attempt);
    void connected(Try &attempt, std::unique_ptr<Stream> stream, const std::string &why);
    void read(Try &attempt, std::string_view bytes);
    void give_up(Try &attempt, const std::string &why, bool gone);
    bool anyone_proved() const;
    void fail_if_hopeless();

    Network &network_;
    std::string_view secret_;
    Claim claim_;
    bool once_;
    Events events_;
    std::list<Try> tries_;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace vescomm
