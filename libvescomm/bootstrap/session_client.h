// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/gathering.h"
#include "bootstrap/group_state.h"
#include "bootstrap/link.h"

namespace vescomm::internal {

// One process's side of a session: handles the frames that the hub sends, for all groups of the
// process, and sends its own. The process of rank 0 also has one; its frames reach the hub without
// a connection.
//
// Used in the network's thread only.
class SessionClient {
public:
    // Functions that send frames to the hub.
    struct Port {
        std::function<void(FrameType, std::string payload)> send;
        std::function<void(const GroupId &, Pieces)> send_data;
    };

    // `changed` is called when the session has begun or failed.
    SessionClient(int rank, int ranks, Port port, std::function<void()> changed);

    // A frame from the hub.
    void receive(FrameType type, std::string_view payload);
    // The hub is gone: every group fails.
    void lose_hub(Ended how, const std::string &absence);
    // The whole session fails.
    void fail(vescomm_status_t status, const std::string &why);

    bool started() const { return started_; }
    const std::optional<Error> &failure() const { return failure_; }
    // Reason why a process no longer takes part; empty if it takes part.
    const std::string &absence(int rank) const { return processes_[rank].absence; }
    // True: it has ended the session in good order, or nothing came from it for too long. A process
    // of which only the connection ended may be alive.
    bool gone(int rank) const {
        return !absence(rank).empty() && processes_[rank].how != Ended::died;
    }
    // A process has ended its session in good order, or died: no new group of all processes can be
    // made.
    bool anyone_absent() const { return absent_ > 0; }
    // At least one process is absent, and every absent one has ended its session in good order.
    bool ended_in_order() const { return absent_ > 0 && died_ == 0; }
    // Address on which survivors can reach a process, and the number of its listener.
    const std::string &listens(int rank) const { return processes_[rank].listens; }
    std::uint64_t listener(int rank) const { return processes_[rank].listener; }

    // ---- groups ----

    void open(const std::shared_ptr<GroupState> &group, const std::string &label);
    void contribute(const std::shared_ptr<GroupState> &group, const ContributionHead &head,
                    std::string bytes);
    // The caller's deadline has passed in an all-gather, or (sequence 0) before the group was open.
    void expire(const std::shared_ptr<GroupState> &group, std::uint64_t sequence,
                double waited_seconds);
    // The group's failure was set in this process: notifies the other members.
    void spread_failure(const std::shared_ptr<GroupState> &group);
    // Notifies the members of groups whose failure was set while there was no memory to post it.
    void spread_failures();
    void send_note(const std::shared_ptr<GroupState> &group, int rank, const std::string &bytes);
    void leave(const std::shared_ptr<GroupState> &group);
    // Stops reporting to the group.
    void forget(const std::shared_ptr<GroupState> &group);
    bool idle() const { return groups_.empty(); }

private:
    struct Process {
        std::string absence;
        Ended how = Ended::died;  // with an absence
        std::string listens;
        std::uint64_t listener = 0;
    };

    // A group, and the frames that passed between this process and the hub about it.
    struct Group {
        std::shared_ptr<GroupState> state;
        bool contributed = false;  // an all-gather is under way
        std::uint64_t answered = 0;  // sequence of the last result
        std::optional<GatherReader> reader = {};  // a result whose data are still arriving
        bool said_goodbye = false;
        bool from_hub = false;  // the hub reported the failure
        bool spread = false;  // the failure was sent to the hub

        // True: the hub does not know of a failure that was set in this process. After the goodbye
        // only an abort counts: an interrupt of the wait for the other ranks, which still rely on
        // this one.
        bool owes_failure() const {
            if (!state->failure.broken() || from_hub || spread) return false;
            if (!said_goodbye) return true;
            return state->failure.status() == VESCOMM_ERROR_ABORTED && !state->all_left();
        }
    };

    void receive_start(WireReader &reader);
    void receive_ended(WireReader &reader);
    bool receive_for(Group &group, FrameType type, WireReader &reader);
    void report_violation();
    static void lose(GroupState &group, vescomm_status_t status, const std::string &why);
    void send(FrameType type, const GroupId &group, const std::string &rest = {});

    int rank_;
    Port port_;
    std::function<void()> changed_;
    std::vector<Process> processes_;
    std::map<GroupId, Group> groups_;
    bool started_ = false;
    int absent_ = 0;
    int died_ = 0;
    std::optional<Error> failure_;
};

}  // namespace vescomm::internal
