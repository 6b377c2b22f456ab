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
#include "bootstrap/member_probe.h"
#include "bootstrap/session_core.h"

namespace vescomm::internal {

// The rendezvous of the members of a group that survive a failure, also when the hub is gone.
//
// Every process of a session listens, and knows the addresses of the others. The lowest member that
// is not known to be gone leads. The others connect to it; if a connection is refused because the
// process is gone, they try the next rank. The leader waits until every member has come or is gone.
// It probes silent members: the operating system refuses connections to a process that has ended,
// and a process that has got its port since does not know the secret of its listener. It then sends
// the list of survivors to all of them and becomes the hub of their new session.
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
        // Leader: connections to the other survivors. Others: the connection to the leader.
        std::vector<SessionCore::Survivor> followers;
        std::optional<HubSearch::Found> leader;
        std::string welcome;  // the payload that the leader sends
    };
    struct Events {
        std::function<void(Result)> done;
        std::function<void(const Error &)> failed;
        // HubSearch::Events::listen of the new session.
        std::function<SurvivorListener(const Stream &)> listen;
        // True: the connection between the member and the hub of the old session has ended. The
        // process has probably ended too, and gets less time to answer.
        std::function<bool(int member)> lost;
    };

    // `listeners`: of each member of the group. `gone`: members known to be gone. `excluded`:
    // members that the caller names as failed, gone or not. The core is borrowed: it holds the
    // connections of members that came earlier.
    Regroup(Network &network, SessionCore &core, const GroupId &group, int rank,
            const std::vector<SurvivorListener> &listeners, const std::set<int> &gone,
            const std::set<int> &excluded, Events events);
    ~Regroup();

    void begin();
    // Called when the caller's deadline has passed. Returns a sentence that names the missing
    // members, and notifies every waiting member.
    std::string expire(double waited_seconds);

private:
    // A member of the group as this process sees it.
    struct Member {
        TcpAddress address;
        std::string secret;  // of its listener
        bool gone = false;
        bool excluded = false;
        // The leader: a probe under way; the time of the first probe, or of the last answer; a
        // probe since then has found a listening process.
        std::unique_ptr<MemberProbe> probe = {};
        std::optional<Clock::time_point> asked = {};
        bool listens = false;
        bool here = false;  // it has come
        bool came = false;  // it has come, but may have given up since
    };
    // The members that the leader waits for: those that have never come; if there are none, those
    // that have given up.
    struct Awaited {
        std::vector<int> members;
        bool gave_up = false;
    };

    int leader() const;
    // True: the leader waits for the member.
    bool is_missing(int member) const;
    void follow();
    void look_again();
    void lead();
    Clock::duration max_answer_time(int member) const;
    void ask(int member);
    void decide();
    bool has_come(int member) const;
    void look_who_is_here();
    Awaited awaited() const;
    Awaited noted() const;
    void notify();
    bool possible(const std::vector<int> &survivors) const;
    void schedule(std::function<void()> call, Clock::duration in);
    void fail(const Error &error);

    Network &network_;
    SessionCore &core_;
    GroupId group_;
    int rank_;
    std::vector<Member> members_;
    Events events_;
    std::unique_ptr<HubSearch> search_;
    Clock::time_point led_at_{};  // the latest time at which the leader asked
    std::unique_ptr<Timer> timer_;
    bool over_ = false;
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace vescomm::internal
