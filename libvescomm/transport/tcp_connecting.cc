// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp_connecting.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace vescomm::internal {

namespace {

constexpr auto first_retry = std::chrono::milliseconds(250);
constexpr auto max_retry = std::chrono::milliseconds(2000);
// An attempt that is not answered for this time is replaced by another.
constexpr auto answer_patience = std::chrono::seconds(10);
// Pause after an attempt that was refused at once.
constexpr auto retry_pause = std::chrono::milliseconds(20);

}  // namespace

// A connection that this rank is making.
struct TcpConnecting::Attempt {
    Attempt(Descriptor socket, const FrameKey &key, const TcpClaim &claim)
        : socket(std::move(socket)), connector(key, claim) {}

    Descriptor socket;
    TcpConnector connector;
    enum { connecting, greeted, confirmed } phase = connecting;
    Clock::time_point begin = Clock::now();
    std::size_t wanted = tcp_answer_bytes;
};

// The attempts to reach one rank.
struct TcpConnecting::Outgoing {
    std::list<Attempt> attempts;
    Clock::time_point next{};  // when the next attempt may begin
    std::chrono::milliseconds retry = first_retry;
    // An attempt is confirmed, and the others wait. Both ends keep the connection on which the
    // handshake was completed, so that there is exactly one.
    bool confirmed = false;
};

TcpConnecting::TcpConnecting(const TcpSelf &self)
    : self_(self), outgoing_(static_cast<std::size_t>(self.rank)) {}

TcpConnecting::~TcpConnecting() = default;

void TcpConnecting::advance(TcpRanks &ranks, Clock::time_point now) {
    for (std::size_t peer = 0; peer < outgoing_.size(); ++peer) {
        if (!ranks.missing(peer)) continue;
        Outgoing &outgoing = outgoing_[peer];
        for (auto attempt = outgoing.attempts.begin(); attempt != outgoing.attempts.end();) {
            // The peer may already have established a confirmed connection, so it is never late.
            const bool late =
                attempt->phase != Attempt::confirmed && now - attempt->begin > answer_patience;
            if (!late && advance(*attempt, outgoing, ranks.last_problem)) {
                ++attempt;
                continue;
            }
            if (attempt->phase == Attempt::confirmed) outgoing.confirmed = false;
            attempt = outgoing.attempts.erase(attempt);
            outgoing.next = std::min(outgoing.next, now + retry_pause);
        }
        for (Attempt &attempt : outgoing.attempts) {
            if (attempt.phase != Attempt::confirmed || attempt.wanted > 0) continue;
            ranks.established[peer] = {std::move(attempt.socket), attempt.connector.keys()};
            outgoing.attempts.clear();
            break;
        }
        if (!ranks.established[peer].socket.open() && !outgoing.confirmed && now >= outgoing.next &&
            outgoing.attempts.size() < max_attempts) {
            start_attempt(ranks, static_cast<int>(peer), outgoing);
            outgoing.next = now + outgoing.retry;
            outgoing.retry = std::min(2 * outgoing.retry, max_retry);
        }
    }
}

void TcpConnecting::start_attempt(TcpRanks &ranks, int peer, Outgoing &outgoing) {
    const TcpPeer &to = ranks.peers[static_cast<std::size_t>(peer)];
    std::string why;
    const std::vector<SocketAddress> found = resolve_numeric(to.address, why);
    if (found.empty()) {
        ranks.last_problem = why;
        return;
    }
    const SocketAddress &address = found.front();
    Descriptor made(
        socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
    if (!made.open()) {
        ranks.last_problem = reason(errno);
        return;
    }
    set_option(made.get(), TCP_NODELAY, 1);
    // On the connecting side this option delays the packet that completes the connection until it
    // can carry the hello.
    set_option(made.get(), TCP_DEFER_ACCEPT, 1);
    if (connect(made.get(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
        ranks.last_problem = to_text(to.address) + ": " + reason(errno);
        return;
    }
    const TcpClaim claim{to.session, static_cast<std::uint32_t>(self_.rank),
                         static_cast<std::uint32_t>(peer), self_.encrypted};
    outgoing.attempts.emplace_back(std::move(made), self_.key, claim);
}

// Returns false if the attempt has failed.
bool TcpConnecting::advance(Attempt &attempt, Outgoing &outgoing, std::string &problem) {
    if (attempt.phase == Attempt::connecting) {
        pollfd entry{attempt.socket.get(), POLLOUT, 0};
        if (poll(&entry, 1, 0) != 1) return true;
        int code = 0;
        socklen_t size = sizeof code;
        getsockopt(attempt.socket.get(), SOL_SOCKET, SO_ERROR, &code, &size);
        if (code != 0 || !send_all(attempt.socket.get(), attempt.connector.hello())) {
            problem = reason(code != 0 ? code : errno);
            return false;
        }
        attempt.phase = Attempt::greeted;
    }
    while (attempt.wanted > 0) {
        // The other attempts wait while one is confirmed.
        if (attempt.phase == Attempt::greeted && outgoing.confirmed) return true;
        std::string bytes;
        const Read read = read_some(attempt.socket.get(), attempt.wanted, bytes, problem);
        if (read == Read::nothing) return true;
        if (read == Read::ended) return false;
        std::string_view rest = bytes;
        attempt.wanted -= rest.size();
        switch (attempt.connector.read(rest)) {
            case TcpConnector::State::waiting:
                break;
            case TcpConnector::State::answered:
                if (!send_all(attempt.socket.get(), attempt.connector.confirm())) return false;
                attempt.phase = Attempt::confirmed;
                outgoing.confirmed = true;
                attempt.wanted = tcp_ready_bytes;
                break;
            case TcpConnector::State::ready:
                return true;
            case TcpConnector::State::refused:
                problem = "the other end is not the rank that was to be reached";
                return false;
        }
    }
    return true;
}

void TcpConnecting::poll_for(std::vector<pollfd> &entries) const {
    for (const Outgoing &outgoing : outgoing_)
        for (const Attempt &attempt : outgoing.attempts) {
            const bool connecting = attempt.phase == Attempt::connecting;
            // An attempt that waits for the confirmed one is not polled.
            if (attempt.phase == Attempt::greeted && outgoing.confirmed) continue;
            entries.push_back(
                {attempt.socket.get(), static_cast<short>(connecting ? POLLOUT : POLLIN), 0});
        }
}

}  // namespace vescomm::internal
