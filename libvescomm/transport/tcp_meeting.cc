// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp_meeting.h"

#include <poll.h>

#include <utility>

#include "base/error.h"
#include "base/interrupt.h"

namespace vescomm::internal {

TcpMeeting::TcpMeeting(const FrameKey &key, int rank, bool encrypted)
    : self_{key, rank, encrypted, random_session()}, connecting_(self_), accepting_(self_) {}

std::vector<TcpEstablished> TcpMeeting::meet(std::vector<TcpPeer> peers, const Failure &failure,
                                             Deadline deadline) {
    ranks_.peers = std::move(peers);
    ranks_.established.resize(ranks_.peers.size());
    const std::string self = rank_name(static_cast<std::size_t>(self_.rank));
    InterruptPoll poll;
    while (!done()) {
        failure.check();
        if (poll.interrupted())
            throw Error(VESCOMM_ERROR_ABORTED,
                        self + " was interrupted while it connected over TCP with " + missing());
        if (deadline.expired()) {
            const std::string &last = ranks_.last_problem;
            throw Error(VESCOMM_ERROR_TIMEOUT,
                        self + " has not connected over TCP with " + missing() + " in time" +
                            (last.empty() ? "" : " (last: " + last + ")") +
                            "; check that the nodes reach one another on all ports of the "
                            "interface that the ranks meet on");
        }
        const auto now = Clock::now();
        connecting_.advance(ranks_, now);
        accepting_.advance(ranks_, now);
        if (!done()) wait();
    }
    accepting_.close();
    return std::move(ranks_.established);
}

bool TcpMeeting::done() const {
    for (std::size_t peer = 0; peer < ranks_.peers.size(); ++peer)
        if (ranks_.missing(peer)) return false;
    return true;
}

std::string TcpMeeting::missing() const {
    constexpr std::size_t max = 8;
    std::string names;
    std::size_t count = 0;
    for (std::size_t peer = 0; peer < ranks_.peers.size(); ++peer)
        if (ranks_.missing(peer) && ++count <= max)
            names += (names.empty() ? "" : ", ") + rank_name(peer);
    return count <= max ? names : names + " and " + std::to_string(count - max) + " more";
}

void TcpMeeting::wait() const {
    constexpr int poll_milliseconds = 20;
    std::vector<pollfd> entries;
    accepting_.poll_for(entries);
    connecting_.poll_for(entries);
    poll(entries.data(), entries.size(), poll_milliseconds);
}

}  // namespace vescomm::internal
