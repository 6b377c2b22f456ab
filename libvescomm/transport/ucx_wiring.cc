// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Wire-up of a UcxFabric.
#include <poll.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "transport/ucx_endpoint.h"
#include "transport/ucx_fabric.h"

namespace vescomm::internal {
namespace {

// Longest sleep during wire-up before the deadline is checked again.
constexpr int wiring_poll_milliseconds = 20;

std::string rank_name(int rank) {
    return "rank " + std::to_string(rank);
}

}  // namespace

UcxFabric::UcxFabric(const UcxLibrary &ucx, int process, const std::vector<bool> &peers,
                     const std::string &interface)
    : process_(getpid()),
      worker_(ucx, static_cast<std::size_t>(std::count(peers.begin(), peers.end(), true)),
              interface),
      shared_(ucx, worker_, process, peers),
      receiver_(shared_) {
    receiver_.open();
}

// UCX connects at the first message. Sending it here, with answers in both directions, finds faults
// before the first collective. A hello shows that the sender reaches this process, a welcome that
// this process reaches the sender.
void UcxFabric::wire_up(Control &control, const Failure &failure, Deadline deadline) {
    unsigned major = 0, minor = 0, release = 0;
    shared_.ucx.get_version(&major, &minor, &release);
    UcxAddress own;
    own.ucx_major = major;
    own.ucx_minor = minor;
    own.rank = static_cast<std::uint32_t>(shared_.process);
    own.token = receiver_.token();
    own.worker = worker_.address();
    const auto addresses = control.all_gather("ucx addresses", serialise(own), deadline);
    for (const auto &endpoint : shared_.endpoints) {
        if (!endpoint) continue;
        const int peer = endpoint->process();
        const UcxAddress address =
            parse_ucx_address(addresses[static_cast<std::size_t>(peer)], peer);
        if (address.ucx_major != major || address.ucx_minor != minor)
            throw Error(VESCOMM_ERROR_MISMATCH,
                        rank_name(shared_.process) + " has UCX " + std::to_string(major) + "." +
                            std::to_string(minor) + " and " + rank_name(peer) + " has UCX " +
                            std::to_string(address.ucx_major) + "." +
                            std::to_string(address.ucx_minor) +
                            ", which cannot talk to one another; install the same on all nodes");
        endpoint->connect(address);
    }
    InterruptPoll poll;
    while (!idle()) wait_for_wiring(failure, deadline, poll);
    for (const auto &endpoint : shared_.endpoints)
        if (endpoint) endpoint->send_control(MessageKind::hello);
    std::vector<bool> welcomed(shared_.endpoints.size());
    while (!wired(welcomed)) wait_for_wiring(failure, deadline, poll);
    failure.check();
    wired_ = true;
}

bool UcxFabric::idle() const {
    return std::all_of(shared_.endpoints.begin(), shared_.endpoints.end(),
                       [](const auto &endpoint) { return !endpoint || endpoint->idle(); });
}

void UcxFabric::wait_for_wiring(const Failure &failure, Deadline deadline, InterruptPoll &poll) {
    failure.check();
    if (poll.interrupted())
        throw Error(VESCOMM_ERROR_ABORTED,
                    rank_name(shared_.process) +
                        " was interrupted while it connected over UCX with " + not_connected());
    for (const auto &endpoint : shared_.endpoints)
        if (endpoint && endpoint->failed())
            throw Error(VESCOMM_ERROR_PEER_FAILED,
                        endpoint->why(shared_.process, endpoint->process()) +
                            "; that process ended or its network did, see its output");
    if (deadline.expired())
        throw Error(VESCOMM_ERROR_TIMEOUT,
                    rank_name(shared_.process) + " has not connected over UCX with " +
                        not_connected() +
                        " in time; check that the nodes reach one another on the interfaces "
                        "that UCX picks, or set UCX_NET_DEVICES to the right one");
    if (step() || !arm_locked()) return;
    pollfd descriptor{worker_.descriptor(), POLLIN, 0};
    ::poll(&descriptor, 1, wiring_poll_milliseconds);
}

bool UcxFabric::wired(std::vector<bool> &welcomed) {
    bool wired = true;
    for (const auto &endpoint : shared_.endpoints) {
        if (!endpoint) continue;
        const int peer = endpoint->process();
        const auto at = static_cast<std::size_t>(peer);
        if (endpoint->gave_up)
            throw Error(VESCOMM_ERROR_PEER_FAILED, rank_name(peer) + " gave up while " +
                                                       rank_name(shared_.process) +
                                                       " connected to it over UCX; see its output");
        if (endpoint->said_hello && !welcomed[at]) {
            welcomed[at] = true;
            endpoint->send_control(MessageKind::welcome);
        }
        // The welcome of this process must have left, because the peer needs it and this process
        // may stop making progress.
        wired = wired && welcomed[at] && endpoint->welcomed && endpoint->idle();
    }
    return wired;
}

std::string UcxFabric::not_connected() const {
    std::string names;
    for (const auto &endpoint : shared_.endpoints)
        if (endpoint && !endpoint->welcomed)
            names += (names.empty() ? "" : ", ") + rank_name(endpoint->process());
    return names.empty() ? "its peers" : names;
}

}  // namespace vescomm::internal
