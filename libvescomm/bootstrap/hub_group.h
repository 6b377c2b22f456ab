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

namespace vescomm {

// The processes of a session as the accounts of its groups see them. Ranks are those of the
// session.
class HubPorts {
public:
    virtual ~HubPorts() = default;
    virtual void send(int rank, FrameType type, std::string payload) = 0;
    virtual void send_data(int rank, const GroupId &group, const Pieces &pieces) = 0;
    // Why a process takes no part any more: "died, ...". Empty: it does.
    virtual std::string absence(int rank) const = 0;
};

// The hub's account of one group: who takes part, its all-gather, its first failure, and who has
// left.
class HubGroup {
public:
    // `number`: no other group of the session ever has the same.
    HubGroup(HubPorts &ports, const GroupId &id, std::uint32_t number)
        : ports_(ports), id_(id), number_(number) {}

    // The first opening says who the members are, by their session ranks; the others must agree.
    void open(int process, std::vector<int> members, std::string label);
    // A frame of a member; false: it breaks the protocol.
    bool receive(int process, FrameType type, WireReader &reader);
    // A process that may be a member is gone.
    void lose(int process, const std::string &absence);
    void fail(vescomm_status_t status, const std::string &why);

    // Nobody will send anything for it any more.
    bool done() const;

private:
    struct Member {
        int process = 0;
        bool opened = false;
        bool left = false;
        bool gone = false;  // its process is
    };

    int rank_of(int process) const;
    void send_all(FrameType type, const std::string &payload);
    std::string payload() const;
    std::vector<int> not_opened() const;
    void expire(int asking, std::uint64_t sequence, double waited_seconds);
    void begin(int rank, ContributionHead head);
    void answer_if_complete();
    void leave(int rank);
    void fail(const std::optional<Error> &error);

    HubPorts &ports_;
    GroupId id_;
    std::uint32_t number_;
    std::string label_;  // what is being made: "communicator creation"
    std::vector<Member> members_;
    std::size_t opened_ = 0;
    std::size_t left_ = 0;
    std::optional<Gathering> gathering_;
    std::optional<Error> failure_;
};

}  // namespace vescomm
