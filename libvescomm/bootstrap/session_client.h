// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/group_state.h"
#include "bootstrap/link.h"

namespace vescomm {

// One process's side of a session: what it hears from the hub, for all of its groups, and what it
// says. The process of rank 0 has one as well; its frames go to the hub without a connection.
//
// Used in the network's thread only.
class SessionClient {
public:
    // How frames reach the hub.
    struct Port {
        std::function<void(FrameType, std::string payload)> send;
        std::function<void(const GroupId &, Pieces)> send_data;
    };

    // `changed`: called when the session has begun or failed.
    SessionClient(int rank, int ranks, Port port, std::function<void()> changed);

    // A frame of the hub.
    void receive(FrameType type, std::string_view payload);
    // The hub is gone: every group fails.
    void lose_hub(const std::string &absence);
    // The whole session fails.
    void fail(vescomm_status_t status, const std::string &why);

    bool started() const { return started_; }
    const std::optional<Error> &failure() const { return failure_; }
    // Why a process takes no part any more; empty: it does.
    const std::string &absence(int rank) const { return processes_[rank].absence; }
    // A process has ended its session in good order, or died: no new group of all can be made.
    bool anyone_absent() const { return absent_ > 0; }
    // All that are absent have ended their sessions in good order, and some have.
    bool ended_in_order() const { return absent_ > 0 && died_ == 0; }
    // Where survivors find a process.
    const std::string &listens(int rank) const { return processes_[rank].listens; }

    // ---- groups ----

    void open(const std::shared_ptr<GroupState> &group, const std::string &label);
    void contribute(const std::shared_ptr<GroupState> &group, const ContributionHead &head,
                    std::string bytes);
    // The caller has waited in vain for an all-gather, or (0) for the others to open the group.
    void expire(const std::shared_ptr<GroupState> &group, std::uint64_t sequence,
                double waited_seconds);
    // The group's failure was set here: the others are told.
    void spread_failure(const std::shared_ptr<GroupState> &group);
    void leave(const std::shared_ptr<GroupState> &group);
    // Nothing more is reported to it.
    void forget(const std::shared_ptr<GroupState> &group);
    bool idle() const { return groups_.empty(); }

private:
    struct Process {
        std::string absence;
        std::string listens;
    };

    void receive_start(WireReader &reader);
    void receive_ended(WireReader &reader);
    bool receive_for(GroupState &group, FrameType type, WireReader &reader);
    void report_violation();
    static void lose(GroupState &group, vescomm_status_t status, const std::string &why);
    void send(FrameType type, const GroupId &group, const std::string &rest = {});

    int rank_;
    Port port_;
    std::function<void()> changed_;
    std::vector<Process> processes_;
    std::map<GroupId, std::shared_ptr<GroupState>> groups_;
    bool started_ = false;
    int absent_ = 0;
    int died_ = 0;
    std::optional<Error> failure_;
};

}  // namespace vescomm
