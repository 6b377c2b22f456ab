// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "bootstrap/group_id.h"
#include "bootstrap/hub_search.h"
#include "bootstrap/link.h"

namespace vescomm::internal {

// The connection of a process to the hub: the search for the hub, then its frames. The process of
// rank 0 has none.
//
// Used in the network's thread only.
class HubConnection {
public:
    struct Events {
        std::function<void(FrameType, std::string_view payload)> received;
        // The hub is gone.
        std::function<void(Ended how, const std::string &absence)> lost;
        // The search cannot succeed, or the hub has refused this process.
        std::function<void(const Error &)> failed;
    };

    // A connection on which nothing is sent for half of `heartbeat` carries a heartbeat; after
    // `silence` without a byte the hub is lost.
    HubConnection(Network &network, Clock::duration heartbeat, Clock::duration silence,
                  Events events);

    // `secret` is borrowed. `listen`: see HubSearch.
    void search(std::vector<TcpAddress> addresses, std::string_view secret, const Claim &claim,
                std::function<SurvivorListener(const Stream &)> listen);
    // Takes a connection that has been found otherwise.
    void take(HubSearch::Found found);

    // True once the hub has been found.
    bool found() const { return link_ != nullptr; }
    bool open() const { return link_ && link_->open(); }
    // Reason why the hub has not been found so far, for a sentence.
    std::string trouble() const { return search_ ? search_->trouble() : std::string(); }

    // Do nothing before the hub has been found.
    void send(FrameType type, std::string payload);
    void send_data(const GroupId &group, Pieces pieces);

    // Must be called regularly. `stalled`: the time for which this process did not run.
    void tick(Clock::duration stalled);
    // Ends the search, or closes the connection after all bytes are sent.
    void finish();

private:
    void search_again();
    void end_search();

    Network &network_;
    const Clock::duration heartbeat_;
    const Clock::duration silence_;
    const Events events_;
    std::unique_ptr<HubSearch> search_;
    std::unique_ptr<Timer> search_timer_;
    std::unique_ptr<Link> link_;
    std::string address_;  // of the hub
};

}  // namespace vescomm::internal
