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
#include "bootstrap/survivor_listener.h"

namespace vescomm::internal {

struct HubOptions {
    int ranks = 1;
    std::string build;  // version and build of this process's library; must be equal on all ranks
    Clock::duration heartbeat{};
    Clock::duration silence{};
    // Listens for survivors on the interface with this address; see regroup.h.
    std::function<SurvivorListener(const std::string &host)> listen;
    // Number of connections that gave up before they proved that they have the secret.
    std::function<int()> abandoned;
};

// The center of a session's control plane: a star of authenticated connections around the process
// of rank 0.
//
//     rank 1 --+                 The hub detects the end of every process and notifies the others:
//     rank 2 --+-- hub (rank 0)  an end of file, a silence, or a failure that a process reports.
//     rank 3 --+
//
// The state of each group of the session is a HubGroup (hub_group.h). The process of rank 0 takes
// part as every other process does, through a port without a connection.
//
// Used in the network's thread only.
class Hub final : public HubPorts {
public:
    // Delivers a frame to the process of rank 0 itself. Called later, never from within a call of
    // the hub.
    using Local = std::function<void(FrameType, std::string payload)>;

    Hub(Network &network, const HubOptions &options, Local local);

    // Adds an authenticated process and sends it a welcome with this payload. `rest`: bytes that
    // were received after its join.
    void admit(const Claim &claim, std::unique_ptr<Link> link, const std::string &rest,
               std::string welcome = {});
    // A frame from the process of rank 0.
    void receive_local(FrameType type, std::string payload);
    // The process of rank 0 reached its deadline before all processes had joined.
    void expire_meeting(int asking, double waited_seconds);
    // Ends the session because it cannot be formed or loses its hub, and notifies every process.
    void fail(vescomm_status_t status, const std::string &why);

    // Sends heartbeats, and removes processes that have been silent for too long. Must be called
    // regularly; `stalled` is the delay of this call.
    void tick(Clock::duration stalled);

    // Every process has joined.
    bool complete() const { return awaited_ == 0; }
    // The numeric address of this process's interface that the other processes can reach.
    const std::string &host() const { return host_; }
    // No process is connected.
    bool deserted() const;
    // Every process that is known to exist has been notified of a failure.
    bool everyone_notified() const { return joined_ + 1 >= expected_; }
    // The process of rank 0 ends its session; the hub serves the others until they end theirs.
    void end_local();
    // Closes every connection after all queued bytes have been sent.
    void finish();

    // HubPorts: the interface that groups use.
    void send(int rank, FrameType type, std::string payload) override;
    void send_data(int rank, const GroupId &group, const Pieces &pieces) override;
    std::string absence(int rank) const override;

private:
    // One process of the session.
    struct Process {
        std::unique_ptr<Link> link;  // null: rank 0, or not connected
        std::string address;  // address of its end of the connection
        SurvivorListener listener;
        bool joined = false;
        bool beside = false;  // on this machine
        bool closed = false;  // ended its session in good order
        std::string absence;  // reason why it is gone; empty: it is connected
    };

    void check_claim(const Claim &claim, const std::string &address);
    void refuse(std::unique_ptr<Link> link);
    void start_session();
    void receive(int rank, FrameType type, std::string_view payload);
    void report_violation(int rank);
    void remove(int rank, Ended how, const std::string &absence);
    HubGroup *find(const GroupId &id);

    Network &network_;
    HubOptions options_;
    Local local_;
    std::vector<Process> processes_;
    std::map<GroupId, HubGroup> groups_;
    std::uint32_t groups_so_far_ = 0;
    std::string host_;
    bool reached_ = false;  // a process on another machine has reached host_
    std::optional<Error> failure_;  // failure of the whole session
    std::vector<std::unique_ptr<Link>> refused_;
    int awaited_;
    std::uint32_t joined_ = 0;
    std::uint32_t expected_;
};

}  // namespace vescomm::internal
