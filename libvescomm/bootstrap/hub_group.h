// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "bootstrap/frame.h"
#include "bootstrap/gathering.h"
#include "bootstrap/group_id.h"
#include "bootstrap/link.h"

namespace vescomm::internal {

// The processes of a session, as its groups use them. Ranks are those of the session.
class HubPorts {
public:
    virtual ~HubPorts() = default;
    virtual void send(int rank, FrameType type, std::string payload) = 0;
    virtual void send_data(int rank, const GroupId &group, const Pieces &pieces) = 0;
    // Reason why a process no longer takes part ("died, ..."); empty if it takes part.
    virtual std::string absence(int rank) const = 0;
};

// State of one group at the hub: its members, its all-gather, its first failure, and the members
// that have left.
class HubGroup {
public:
    // `number`: unique among all groups of the session, also past ones.
    HubGroup(HubPorts &ports, const GroupId &id, std::uint32_t number)
        : ports_(ports), id_(id), number_(number) {}

    // A process opens the group. The first opening defines the members, by session rank; the others
    // must agree.
    void open(int process, std::vector<int> members, std::string label);
    // Handles a frame of a member. Returns false if the frame breaks the protocol.
    bool receive(int process, FrameType type, WireReader &reader);
    // A process is gone; it may be a member.
    void lose(int process, const std::string &absence);
    void fail(vescomm_status_t status, const std::string &why);

    // No further frame will be sent for this group.
    bool done() const;

private:
    struct Member {
        int process = 0;
        bool opened = false;
        bool left = false;
        bool gone = false;  // its process is gone
    };

    int rank_of(int process) const;
    void send_all(FrameType type, const std::string &payload);
    std::string payload() const;
    std::vector<int> not_opened() const;
    void expire(int asking, std::uint64_t sequence, double waited_seconds);
    void begin(int rank, ContributionHead head);
    void answer_if_complete();
    void leave(int rank);
    bool pass_note(int from, WireReader &reader);
    void fail(const std::optional<Error> &error);

    HubPorts &ports_;
    GroupId id_;
    std::uint32_t number_;
    std::string label_;  // the call in progress: "communicator creation"
    std::vector<Member> members_;
    std::size_t opened_ = 0;
    std::size_t left_ = 0;
    std::optional<Gathering> gathering_;
    std::optional<Error> failure_;
};

}  // namespace vescomm::internal
