// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "bootstrap/acceptor.h"
#include "bootstrap/link.h"
#include "bootstrap/survivor_listener.h"

namespace vescomm::internal {

// The surviving processes that wait for this one to regroup; see regroup.h.
//
// Used in the network's thread only.
class WaitingSurvivors {
public:
    struct Survivor {
        Claim claim;  // with its rank in that group
        std::unique_ptr<Link> link;
        std::string note = {};  // the latest one that it has got; see Regroup
    };

    // The network is borrowed.
    WaitingSurvivors(Network &network, std::string_view secret);

    static constexpr const char *all_interfaces = "*";

    // Listens for survivors on an interface.
    SurvivorListener listen(const std::string &host);
    // If this process listens on all interfaces: listens only at the given address from now on,
    // whose port is the same.
    void narrow(const std::string &address);
    // The numeric address of that interface; empty: this process does not listen.
    std::string host() const { return acceptor_.address().host; }
    // Keeps a survivor until this process regroups with it, or until it dies: its connection then
    // ends. A process that has come for another purpose is sent away.
    void keep(Acceptor::Joined joined);

    std::list<Survivor> &all() { return survivors_; }
    // Sets a function that is called when a survivor has come or gone.
    void on_change(std::function<void()> call) { changed_ = std::move(call); }

    // Must be called regularly.
    void tidy() { acceptor_.tidy(); }
    // Stops listening and closes all connections.
    void close();

private:
    Network &network_;
    const std::uint64_t number_;  // of the listener
    const std::string secret_;  // of the listener
    Acceptor acceptor_;
    bool everywhere_ = false;  // listens on all interfaces
    std::list<Survivor> survivors_;
    std::function<void()> changed_;
};

}  // namespace vescomm::internal
