// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/control.h"
#include "bootstrap/control_thread.h"
#include "bootstrap/descriptor_exchange.h"
#include "bootstrap/group_state.h"
#include "bootstrap/session_core.h"

namespace vescomm {

// The processes of a job that share one control plane: a star of authenticated TCP connections
// around the hub, in the process of rank 0. All communicators among them are groups of the session,
// and share its connection, its thread and its descriptors.
//
// A process that dies is known to all at once, by the end of its connection. One whose machine or
// network vanished is known after `silence_seconds`; so is one that was killed while a child that
// it forked (without exec) still holds its connections open.
//
// Threads: safe.
class Session : public std::enable_shared_from_this<Session> {
public:
    // The creation of a communicator of all processes. While it lasts, no second one may begin
    // under the same tag in this process: which of the two the other processes mean would be
    // unknown. Both fail then, on all ranks.
    class Creation;

    // Blocks until all processes have met. Uses the session that this process has already with the
    // same rank, ranks, addresses and secret, unless a member of it is gone. The creation begins
    // before another thread can see the session. Throws Error:
    //   INVALID_ARGUMENT  an option is wrong, or libvescomm cannot use it
    //   TIMEOUT           processes stayed away, the sentence names them; or rank 0 cannot be
    //                     reached
    //   MISMATCH          two processes claim one rank; ranks differ in the number of ranks or in
    //                     their build: every rank is told. Or rank 0 has another secret: only this
    //                     rank is.
    //   PEER_FAILED       a process died while others were still awaited
    //   SYSTEM            the port is in use, or the operating system refused something else
    static std::shared_ptr<Session> meet(const SessionOptions &options, Deadline deadline,
                                         Creation &creation);
    ~Session();
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    int rank() const { return options_.rank; }
    int ranks() const { return options_.ranks; }
    const std::string &build() const { return options_.build; }

    // Collective over the members, given by their session ranks: opens a group and waits until all
    // of them have. `label` says for what: "communicator creation". Throws Error as meet() does.
    std::unique_ptr<Control> open(const GroupId &id, std::vector<int> members,
                                  const std::string &label, Deadline deadline,
                                  Creation *creation = nullptr);

    // Collective over the members of a group that survive: a session of them alone. `failed`: ranks
    // of the group that are to be left out although they may not be gone. `survivors`: [out] the
    // ranks in the group, by their new rank.
    std::shared_ptr<Session> regroup(const GroupId &group, const std::vector<int> &members,
                                     int rank, const std::set<int> &failed, Deadline deadline,
                                     std::vector<int> &survivors);

    // No member is gone: new groups of all can be made.
    bool intact();
    // A member has ended its session in good order, and none has died.
    bool ended_in_order();

private:
    friend class GroupControl;

    Session(std::shared_ptr<ControlThread> thread, const SessionOptions &options);

    void make_core();
    void wait_until_met(Deadline deadline);
    void changed();
    // Runs a function in the network's thread, soon; not at all once the session is gone.
    void post(std::function<void(SessionCore &)> function);

    static std::atomic<std::uint64_t> made_;  // sessions of this process so far

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
    std::map<std::string, std::uint64_t> created_;  // by tag: communicators so far
    std::map<std::string, std::uint64_t> refused_;  // by tag: those that overlapped
    std::multimap<std::string, Creation *> creations_;  // by tag: those that are under way
};

class Session::Creation {
public:
    // An empty tag: communicators are told apart by the order of their creation.
    explicit Creation(std::string tag);
    ~Creation();
    Creation(const Creation &) = delete;
    Creation &operator=(const Creation &) = delete;

    const GroupId &id() const { return id_; }
    // Throws when another creation overlaps with this one.
    void check() const;
    // Whether creation failed because two overlapped, on whichever rank.
    static bool overlapped(const Error &error);
    // Such a failure concerns two creations on every rank: keeps the session until the second one
    // has been refused here as well, instead of letting it wait for ranks that have given up.
    // Blocks, a few seconds at most.
    void wait_for_the_other() const;

private:
    friend class Session;

    // Once. False where the session has ended, and no other creation waits for its end: nothing
    // has happened.
    bool begin(const std::shared_ptr<Session> &session, bool intact);

    std::shared_ptr<Session> session_;  // null before it has begun
    std::string tag_;
    GroupId id_;
    bool overlaps_ = false;  // guarded by the session's mutex
    std::shared_ptr<GroupState> group_;  // once it is open
};

// Without other processes: neither thread nor socket.
std::unique_ptr<Control> make_lone_control();

}  // namespace vescomm
