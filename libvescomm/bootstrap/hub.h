// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "bootstrap/acceptor.h"
#include "bootstrap/hub_group.h"
#include "bootstrap/link.h"

namespace vescomm {

struct HubOptions {
    int ranks = 1;
    std::string build;  // of this process's library; the same on all
    Clock::duration heartbeat{};
    Clock::duration silence{};
    // Listens for survivors on the interface with this address, and returns where; see regroup.h.
    std::function<TcpAddress(const std::string &host)> listen;
};

// The center of a session's control plane, in the process of its rank 0: a star of authenticated
// connections.
//
//     rank 1 --+                 The hub knows whether each process lives, and tells the others:
//     rank 2 --+-- hub (rank 0)  an end of file, a silence, or the failure that one has reported.
//     rank 3 --+
//
// Each group of the session has its own account here (hub_group.h). The process of rank 0 takes
// part like every other, through a port without a connection.
//
// Used in the network's thread only.
class Hub final : public HubPorts {
public:
    // What the hub sends to the process of rank 0 itself. Called later, never from within a call of
    // the hub.
    using Local = std::function<void(FrameType, std::string payload)>;

    Hub(Network &network, const HubOptions &options, Local local);

    // An authenticated process has come; it is sent a welcome with this payload. `rest`: bytes that
    // it has sent already.
    void admit(const Claim &claim, std::unique_ptr<Link> link, const std::string &rest,
               std::string welcome = {});
    // A frame of the process of rank 0.
    void receive_local(FrameType type, std::string payload);
    // The process of rank 0 waited in vain for the others.
    void expire_meeting(int asking, double waited_seconds);
    // The session cannot be formed, or goes on without its hub: every process is told.
    void fail(vescomm_status_t status, const std::string &why);

    // Heartbeats, and processes that have been silent for too long. Called regularly; `stalled` is
    // how much too late.
    void tick(Clock::duration stalled);

    // Every process has joined.
    bool complete() const { return awaited_ == 0; }
    // The numeric address of the interface on which the others reach this process.
    const std::string &host() const { return host_; }
    // No process is connected any more.
    bool deserted() const;
    // Every process that is known to exist has been told of a failure.
    bool everyone_told() const { return joined_ + 1 >= expected_; }
    // The process of rank 0 ends its session; the others are served until they do.
    void end_local();
    // Closes every connection once everything has been sent.
    void finish();

    // HubPorts: what groups see of processes.
    void send(int rank, FrameType type, std::string payload) override;
    void send_data(int rank, const GroupId &group, const Pieces &pieces) override;
    std::string absence(int rank) const override;

private:
    // One process of the session.
    struct Process {
        std::unique_ptr<Link> link;  // none: rank 0, or not here
        std::string address;  // its end of the connection
        TcpAddress listens;  // where survivors find it
        bool joined = false;
        bool closed = false;  // it has ended its session in good order
        std::string absence;  // why it is gone; empty: it is here
    };

    void check_claim(const Claim &claim, const std::string &address);
    void refuse(std::unique_ptr<Link> link);
    void start_session();
    void receive(int rank, FrameType type, std::string_view payload);
    void report_violation(int rank);
    void remove(int rank, bool closed, const std::string &absence);
    HubGroup *find(const GroupId &id);

    Network &network_;
    HubOptions options_;
    Local local_;
    std::vector<Process> processes_;
    std::map<GroupId, HubGroup> groups_;
    std::uint32_t groups_so_far_ = 0;
    std::string host_;
    std::optional<Error> failure_;  // of the whole session
    std::vector<std::unique_ptr<Link>> refused_;
    int awaited_;
    std::uint32_t joined_ = 0;
    std::uint32_t expected_;
};

}  // namespace vescomm
