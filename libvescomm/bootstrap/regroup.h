// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/hub_search.h"
#include "bootstrap/session_core.h"

namespace vescomm {

// How the members of a group that survive a failure find one another, also when the hub is gone.
//
// Every process of a session listens, and knows where the others do. The lowest member that is not
// known to be gone leads: the others connect to it, in the order of ranks where one refuses (its
// process is gone). The leader waits until every member has come or is gone; it asks those that are
// silent by connecting to them, which the operating system refuses for a process that has ended.
// It then tells everyone who survives, and becomes the hub of a new session among them.
//
//     rank 0 (dead)    rank 1          rank 2          rank 3
//         X <--------- connect         connect ------> X (0 refuses both)
//                      leads  <------- join
//                      asks 3 -------------------------> refused: gone
//                      welcome ------> {1, 2}
//
// Used in the network's thread only.
class Regroup {
public:
    struct Result {
        std::vector<int> survivors;  // ranks in the group, ascending
        // The leader's: the connections to the others. Theirs: the one to the leader.
        std::vector<SessionCore::Survivor> followers;
        std::optional<HubSearch::Found> leader;
        std::string welcome;  // as the leader sends it
    };
    struct Events {
        std::function<void(Result)> done;
        std::function<void(const Error &)> failed;
        // As HubSearch::Events::listen, for the new session.
        std::function<std::uint16_t(const TcpAddress &local)> listen;
    };

    // `addresses`: where each member of the group listens. `gone`: members that are known to be.
    // `excluded`: members that the caller names as failed, whether they are or not.
    // The core is borrowed: it keeps the members that have come before.
    Regroup(Network &network, SessionCore &core, const GroupId &group, int rank,
            std::vector<TcpAddress> addresses, std::set<int> gone, std::set<int> excluded,
            Events events);
    ~Regroup();

    void begin();
    // The caller has waited in vain: a sentence about who is missing. Everyone who waits here is
    // told.
    std::string expire(double waited_seconds);

private:
    int leader() const;
    void follow();
    void look_again();
    void lead();
    void ask(int member);
    void decide();
    bool has_come(int member) const;
    void schedule(std::function<void()> call, Clock::duration in);
    void fail(const Error &error);

    Network &network_;
    SessionCore &core_;
    GroupId group_;
    int rank_;
    std::vector<TcpAddress> addresses_;
    std::set<int> gone_;
    std::set<int> excluded_;
    Events events_;
    std::unique_ptr<HubSearch> search_;
    std::vector<std::unique_ptr<Attempt>> attempts_;
    std::unique_ptr<Timer> timer_;
    bool over_ = false;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace vescomm
