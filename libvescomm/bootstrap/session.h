// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/control.h"
#include "bootstrap/control_thread.h"
#include "bootstrap/descriptor_exchange.h"
#include "bootstrap/group_state.h"
#include "bootstrap/session_core.h"

namespace vescomm::internal {

// The processes of a job that share one control plane: a star of authenticated TCP connections
// around the hub, in the process of rank 0. All communicators of these processes are groups of the
// session and share its connection, its thread and its descriptors.
//
// The death of a process is detected at once, by the end of its connection. A vanished machine or
// network is detected after `silence_seconds`, and so is a killed process while a child that it
// forked (without exec) holds its connections open.
//
// Threads: safe.
class Session : public std::enable_shared_from_this<Session> {
public:
    // The creation of a communicator of all processes. A second creation under the same tag must
    // not begin in this process before the first ends, because the other processes could not
    // distinguish the two. If it does, both fail on all ranks.
    class Creation;

    // Blocks until all processes have joined. Reuses the session of this process with the same
    // rank, ranks, addresses and secret, unless a member of it is gone. The creation begins before
    // another thread can see the session. Throws Error:
    //   INVALID_ARGUMENT  an option is wrong, or libvescomm cannot use it
    //   TIMEOUT           processes did not join, the sentence names them; or rank 0 cannot be
    //                     reached
    //   MISMATCH          two processes claim one rank, or ranks differ in the number of ranks or
    //                     in their build: every rank is notified. Or rank 0 has another secret:
    //                     only this rank is notified.
    //   PEER_FAILED       a process died while others were still awaited
    //   SYSTEM            the port is in use, or the operating system refused something else
    // The deadline moves while this process does not run.
    static std::shared_ptr<Session> meet(const SessionOptions &options, Deadline &deadline,
                                         Creation &creation);
    ~Session();
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    int rank() const { return options_.rank; }
    int ranks() const { return options_.ranks; }
    const std::string &build() const { return options_.build; }

    // Opens a group and waits until all members have opened it. Collective over the members, given
    // by session rank. `label` names the call: "communicator creation". Throws Error as meet()
    // does, and when `parent`, a group of the members, fails.
    std::unique_ptr<Control> open(const GroupId &id, std::vector<int> members,
                                  const std::string &label, Deadline deadline,
                                  Creation *creation = nullptr, const GroupState *parent = nullptr);

    // The group from which the processes of a session of survivors come. All members of its session
    // have met: they know one another's addresses, and listen there as long as they have a
    // communicator. Survivors therefore always meet there, however far each of them has got with a
    // session of survivors; elsewhere two parts of the group could take each other for dead.
    struct Origin {
        std::shared_ptr<Session> session;
        GroupId group;
        std::vector<int> members;  // processes of that session, by rank of the group
        int rank = 0;  // of this process
        std::vector<int> left;  // ranks of the group that are left, ascending
    };
    // Forms a session of the survivors of origin.left. Collective over them. `failed`: ranks of the
    // group to leave out although they may be alive. Throws Error. The deadline moves as in meet().
    static std::shared_ptr<Session> regroup(Origin origin, const std::set<int> &failed,
                                            Deadline &deadline);
    // nullptr: not a session of survivors.
    const Origin *origin() const { return origin_ ? &*origin_ : nullptr; }

    // No member is gone: new groups of all processes can be made.
    bool intact();
    // At least one member has ended its session in good order, and none has died.
    bool ended_in_order();

private:
    friend class GroupControl;

    Session(std::shared_ptr<ControlThread> thread, const SessionOptions &options);

    void make_core();
    // `begin`: the time at which the caller began to wait.
    void wait_until_met(Deadline &deadline, Clock::time_point begin);
    void changed();
    // Queues a function for the network's thread; it is dropped if the session is destroyed first.
    void post(std::function<void(SessionCore &)> function);

    static std::atomic<std::uint64_t> made_;  // number of sessions made in this process

    std::shared_ptr<ControlThread> thread_;
    SessionOptions options_;
    const std::uint64_t number_ = ++made_;  // not 0
    DescriptorExchange descriptors_;
    std::unique_ptr<SessionCore> core_;  // the network's thread only
    std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // the network's thread only

    std::mutex mutex_;
    std::condition_variable changed_;
    std::uint64_t changes_ = 0;
    std::string host_;
    std::optional<Origin> origin_;
    std::map<std::string, std::uint64_t> created_;  // by tag: number of communicators so far
    std::map<std::string, std::uint64_t> refused_;  // by tag: number of creations that overlapped
    std::multimap<std::string, Creation *> creations_;  // by tag: creations under way
};

class Session::Creation {
public:
    // With an empty tag, communicators are told apart by the order of their creation. Constructed
    // in the thread that creates.
    explicit Creation(std::string tag);
    ~Creation();
    Creation(const Creation &) = delete;
    Creation &operator=(const Creation &) = delete;

    const GroupId &id() const { return id_; }
    // Throws when another creation overlaps with this one.
    void check() const;
    // The kind of thread that creates, if several threads of this process have created
    // communicators of this rank without a tag; otherwise empty. Ranks compare it: in different
    // orders, creations that do not overlap in any process could connect threads that do not belong
    // together.
    const std::string &creator() const { return creator_; }
    // The error if ranks have different creators. Throws nothing if one of them is empty.
    static void require_same_creators(const std::vector<std::string> &creators);
    // True if creation failed because two overlapped, on whichever rank.
    static bool overlapped(const Error &error);
    // Keeps the session until the second of two overlapping creations has been refused here as
    // well; otherwise that creation would wait for ranks that have given up. Blocks, a few seconds
    // at most.
    void wait_for_the_other() const;

private:
    friend class Session;

    // Called once, perhaps by another thread. Returns false, without effect, if the session has
    // ended. It may only be begun then if another creation with the tag is under way there, because
    // the two overlap.
    bool begin(const std::shared_ptr<Session> &session, bool intact);

    std::shared_ptr<Session> session_;  // null before it has begun
    const pid_t thread_;  // that creates
    std::string tag_;
    std::string creator_;
    GroupId id_;
    bool overlaps_ = false;  // guarded by the session's mutex
    std::shared_ptr<GroupState> group_;  // set once the group is open
};

// The control plane of a communicator with one process; uses neither thread nor socket.
std::unique_ptr<Control> make_lone_control();

}  // namespace vescomm::internal
