// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp_meeting.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/system.h"

namespace vescomm::internal {
namespace {

// Limits for connections without an authentic hello: their number, the share of all descriptors
// that they may use when descriptors are scarce, and their time.
constexpr std::size_t max_unauthenticated = 1024;
constexpr std::size_t unauthenticated_share = 8;
constexpr auto unauthenticated_patience = std::chrono::seconds(5);
// Number of connections accepted in a row before others are served.
constexpr int max_accepted_at_once = 512;

// Attempts to reach one rank that may be under way at a time. When a flood has filled the queue of
// a listener, the kernel drops the first packet of an attempt and retransmits it a second later; a
// new attempt succeeds sooner.
constexpr std::size_t max_attempts = 4;
constexpr auto first_retry = std::chrono::milliseconds(250);
constexpr auto max_retry = std::chrono::milliseconds(2000);
// An attempt that is not answered for this time is replaced by another.
constexpr auto answer_patience = std::chrono::seconds(10);
// Pause after an attempt that was refused at once.
constexpr auto retry_pause = std::chrono::milliseconds(20);
constexpr int poll_milliseconds = 20;

std::string rank_name(std::size_t rank) {
    return "rank " + std::to_string(rank);
}

std::string reason(int code) {
    return std::generic_category().message(code);
}

void set_option(int socket, int option, int value) {
    setsockopt(socket, IPPROTO_TCP, option, &value, sizeof value);
}

// An empty socket always takes a few bytes. A peer that does not take them is not a rank.
bool send_all(int socket, const std::string &bytes) {
    return send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
}

// The host of an address, without its port.
std::string host_bytes(const SocketAddress &address) {
    const auto *inet = reinterpret_cast<const sockaddr_in *>(&address.storage);
    const auto *inet6 = reinterpret_cast<const sockaddr_in6 *>(&address.storage);
    if (address.family() == AF_INET6)
        return {reinterpret_cast<const char *>(&inet6->sin6_addr), sizeof inet6->sin6_addr};
    return {reinterpret_cast<const char *>(&inet->sin_addr), sizeof inet->sin_addr};
}

enum class Read { some, nothing, ended };

// Reads at most `max` bytes: bytes after the handshake must stay in the socket.
Read read_some(int socket, std::size_t max, std::string &bytes, std::string &problem) {
    char buffer[tcp_hello_bytes];
    const ssize_t got = recv(socket, buffer, std::min(max, sizeof buffer), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Read::nothing;
    if (got <= 0) problem = got == 0 ? "the connection was closed" : reason(errno);
    if (got <= 0) return Read::ended;
    bytes.assign(buffer, static_cast<std::size_t>(got));
    return Read::some;
}

}  // namespace

// A connection that this rank has accepted.
struct TcpMeeting::Incoming {
    Incoming(Descriptor socket, const FrameKey &key, const TcpClaim &claim)
        : socket(std::move(socket)), acceptor(key, claim) {}

    Descriptor socket;
    TcpAcceptor acceptor;
    std::size_t wanted = tcp_hello_bytes;  // bytes missing of the message that the peer is sending
    Clock::time_point came = Clock::now();
    bool authenticated = false;
};

// A connection that this rank is making.
struct TcpMeeting::Attempt {
    Attempt(Descriptor socket, const FrameKey &key, const TcpClaim &claim)
        : socket(std::move(socket)), connector(key, claim) {}

    Descriptor socket;
    TcpConnector connector;
    enum { connecting, greeted, confirmed } phase = connecting;
    Clock::time_point begin = Clock::now();
    std::size_t wanted = tcp_answer_bytes;
};

// The attempts to reach one rank.
struct TcpMeeting::Outgoing {
    std::list<Attempt> attempts;
    Clock::time_point next{};  // when the next attempt may begin
    std::chrono::milliseconds retry = first_retry;
    // An attempt is confirmed, and the others wait. Both ends keep the connection on which the
    // handshake was completed, so that there is exactly one.
    bool confirmed = false;
};

TcpMeeting::TcpMeeting(const FrameKey &key, int rank, bool encrypted)
    : key_(key),
      rank_(rank),
      encrypted_(encrypted),
      session_(random_session()),
      max_unauthenticated_(max_unauthenticated) {
    rlimit descriptors{};
    if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0)
        max_unauthenticated_ = std::min<std::size_t>(max_unauthenticated,
                                                     descriptors.rlim_cur / unauthenticated_share);
}

TcpMeeting::~TcpMeeting() = default;

void TcpMeeting::listen(const std::string &interface) {
    std::string why;
    const std::vector<SocketAddress> found = resolve_numeric({interface, 0}, why);
    if (found.empty())
        throw Error(VESCOMM_ERROR_SYSTEM, rank_name(static_cast<std::size_t>(rank_)) +
                                              " cannot listen for other nodes: " + why);
    const SocketAddress &address = found.front();
    listener_ = Descriptor(
        socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
    if (!listener_.open() || bind(listener_.get(), address.get(), address.length) != 0 ||
        ::listen(listener_.get(), SOMAXCONN) != 0)
        throw system_error(rank_name(static_cast<std::size_t>(rank_)) +
                           " cannot listen for other nodes on " + interface);
    port_ = port_of(listener_.get());
}

std::vector<TcpEstablished> TcpMeeting::meet(std::vector<TcpPeer> peers, const Failure &failure,
                                             Deadline deadline) {
    peers_ = std::move(peers);
    established_.resize(peers_.size());
    outgoing_.resize(static_cast<std::size_t>(rank_));
    while (!done()) {
        failure.check();
        if (deadline.expired()) {
            const std::string self = rank_name(static_cast<std::size_t>(rank_));
            throw Error(VESCOMM_ERROR_TIMEOUT,
                        self + " has not connected over TCP with " + missing() + " in time" +
                            (last_problem_.empty() ? "" : " (last: " + last_problem_ + ")") +
                            "; check that the nodes reach one another on all ports of the "
                            "interface that the ranks meet on");
        }
        const auto now = Clock::now();
        connect_some(now);
        accept_some();
        advance_unauthenticated(now);
        if (!done()) wait();
    }
    listener_ = Descriptor();
    unauthenticated_.clear();
    authenticated_.clear();
    return std::move(established_);
}

bool TcpMeeting::done() const {
    for (std::size_t peer = 0; peer < peers_.size(); ++peer)
        if (peers_[peer].wanted && !established_[peer].socket.open()) return false;
    return true;
}

std::string TcpMeeting::missing() const {
    constexpr std::size_t max = 8;
    std::string names;
    std::size_t count = 0;
    for (std::size_t peer = 0; peer < peers_.size(); ++peer)
        if (peers_[peer].wanted && !established_[peer].socket.open() && ++count <= max)
            names += (names.empty() ? "" : ", ") + rank_name(peer);
    return count <= max ? names : names + " and " + std::to_string(count - max) + " more";
}

// ---- connecting ----

void TcpMeeting::connect_some(Clock::time_point now) {
    for (std::size_t peer = 0; peer < outgoing_.size(); ++peer) {
        if (!peers_[peer].wanted || established_[peer].socket.open()) continue;
        Outgoing &outgoing = outgoing_[peer];
        for (auto attempt = outgoing.attempts.begin(); attempt != outgoing.attempts.end();) {
            // The peer may already have established a confirmed connection, so it is never late.
            const bool late =
                attempt->phase != Attempt::confirmed && now - attempt->begin > answer_patience;
            if (!late && advance(*attempt, outgoing)) {
                ++attempt;
                continue;
            }
            if (attempt->phase == Attempt::confirmed) outgoing.confirmed = false;
            attempt = outgoing.attempts.erase(attempt);
            outgoing.next = std::min(outgoing.next, now + retry_pause);
        }
        for (Attempt &attempt : outgoing.attempts) {
            if (attempt.phase != Attempt::confirmed || attempt.wanted > 0) continue;
            established_[peer] = {std::move(attempt.socket), attempt.connector.keys()};
            outgoing.attempts.clear();
            break;
        }
        if (!established_[peer].socket.open() && !outgoing.confirmed && now >= outgoing.next &&
            outgoing.attempts.size() < max_attempts) {
            start_attempt(static_cast<int>(peer), outgoing);
            outgoing.next = now + outgoing.retry;
            outgoing.retry = std::min(2 * outgoing.retry, max_retry);
        }
    }
}

void TcpMeeting::start_attempt(int peer, Outgoing &outgoing) {
    const TcpPeer &to = peers_[static_cast<std::size_t>(peer)];
    std::string why;
    const std::vector<SocketAddress> found = resolve_numeric(to.address, why);
    if (found.empty()) {
        last_problem_ = why;
        return;
    }
    const SocketAddress &address = found.front();
    Descriptor made(
        socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
    if (!made.open()) {
        last_problem_ = reason(errno);
        return;
    }
    set_option(made.get(), TCP_NODELAY, 1);
    // On the connecting side this option delays the packet that completes the connection until it
    // can carry the hello.
    set_option(made.get(), TCP_DEFER_ACCEPT, 1);
    if (connect(made.get(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
        last_problem_ = to_text(to.address) + ": " + reason(errno);
        return;
    }
    const TcpClaim claim{to.session, static_cast<std::uint32_t>(rank_),
                         static_cast<std::uint32_t>(peer), encrypted_};
    outgoing.attempts.emplace_back(std::move(made), key_, claim);
}

// Returns false if the attempt has failed.
bool TcpMeeting::advance(Attempt &attempt, Outgoing &outgoing) {
    if (attempt.phase == Attempt::connecting) {
        pollfd entry{attempt.socket.get(), POLLOUT, 0};
        if (poll(&entry, 1, 0) != 1) return true;
        int code = 0;
        socklen_t size = sizeof code;
        getsockopt(attempt.socket.get(), SOL_SOCKET, SO_ERROR, &code, &size);
        if (code != 0 || !send_all(attempt.socket.get(), attempt.connector.hello())) {
            last_problem_ = reason(code != 0 ? code : errno);
            return false;
        }
        attempt.phase = Attempt::greeted;
    }
    while (attempt.wanted > 0) {
        // The other attempts wait while one is confirmed.
        if (attempt.phase == Attempt::greeted && outgoing.confirmed) return true;
        std::string bytes;
        const Read read = read_some(attempt.socket.get(), attempt.wanted, bytes, last_problem_);
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
                last_problem_ = "the other end is not the rank that was to be reached";
                return false;
        }
    }
    return true;
}

// ---- accepting ----

void TcpMeeting::accept_some() {
    paused_ = false;
    for (int i = 0; listener_.open() && i < max_accepted_at_once; ++i) {
        SocketAddress from;
        from.length = sizeof from.storage;
        Descriptor socket(accept4(listener_.get(), reinterpret_cast<sockaddr *>(&from.storage),
                                  &from.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (socket.open()) {
            take(std::move(socket), from);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            last_problem_ = reason(errno);
            paused_ = !evict_unauthenticated();
            if (paused_) break;
            continue;
        }
        if (errno == EAGAIN) break;
        // Any other error concerns the connection to be accepted, which is gone.
    }
    for (auto incoming = authenticated_.begin(); incoming != authenticated_.end();) {
        if (advance(*incoming)) ++incoming;
        else incoming = authenticated_.erase(incoming);
    }
}

// Most connections that do not come from a rank are closed here at once.
void TcpMeeting::take(Descriptor socket, const SocketAddress &from) {
    const TcpClaim claim{session_, 0, static_cast<std::uint32_t>(rank_), encrypted_};
    set_option(socket.get(), TCP_NODELAY, 1);
    std::list<Incoming> made;
    made.emplace_back(std::move(socket), key_, claim);
    if (!advance(made.back())) return;
    if (made.back().authenticated) return authenticated_.splice(authenticated_.end(), made);
    std::list<Incoming> &same = unauthenticated_[host_bytes(from)];
    same.splice(same.end(), made);
    if (++unauthenticated_count_ > max_unauthenticated_) evict_unauthenticated();
}

// Closes the oldest connection of the address that has most of them, so that an address with many
// connections takes slots only from itself. Returns false if there is no connection.
bool TcpMeeting::evict_unauthenticated() {
    const auto max = std::max_element(
        unauthenticated_.begin(), unauthenticated_.end(),
        [](const auto &a, const auto &b) { return a.second.size() < b.second.size(); });
    if (max == unauthenticated_.end()) return false;
    max->second.pop_front();
    if (max->second.empty()) unauthenticated_.erase(max);
    --unauthenticated_count_;
    return true;
}

void TcpMeeting::advance_unauthenticated(Clock::time_point now) {
    for (auto same = unauthenticated_.begin(); same != unauthenticated_.end();) {
        std::list<Incoming> &list = same->second;
        for (auto incoming = list.begin(); incoming != list.end();) {
            const auto next = std::next(incoming);
            const bool late = now - incoming->came > unauthenticated_patience;
            const bool open = !late && advance(*incoming);
            if (open && !incoming->authenticated) {
                incoming = next;
                continue;
            }
            if (open) authenticated_.splice(authenticated_.end(), list, incoming);
            else list.erase(incoming);
            --unauthenticated_count_;
            incoming = next;
        }
        same = list.empty() ? unauthenticated_.erase(same) : std::next(same);
    }
}

// Returns false if the connection is to be closed: it was established and moved away, or failed.
bool TcpMeeting::advance(Incoming &incoming) {
    while (true) {
        std::string bytes, problem;
        const Read read = read_some(incoming.socket.get(), incoming.wanted, bytes, problem);
        if (read == Read::nothing) return true;
        if (read == Read::ended) return false;
        std::string_view rest = bytes;
        incoming.wanted -= rest.size();
        switch (incoming.acceptor.read(rest)) {
            case TcpAcceptor::State::waiting:
                continue;
            case TcpAcceptor::State::answered:
                if (!has_capacity(incoming.acceptor.claim().from) ||
                    !send_all(incoming.socket.get(), incoming.acceptor.answer()))
                    return false;
                incoming.authenticated = true;
                incoming.wanted = tcp_confirm_bytes;
                continue;
            case TcpAcceptor::State::confirmed:
                // Replaces an earlier connection: the peer confirms another one only after that one
                // has failed.
                if (send_all(incoming.socket.get(), incoming.acceptor.ready()))
                    established_[incoming.acceptor.claim().from] = {std::move(incoming.socket),
                                                                    incoming.acceptor.keys()};
                return false;
            case TcpAcceptor::State::refused:
                return false;
        }
    }
}

// True if another handshake of a rank may begin; a rank makes at most max_attempts at a time.
bool TcpMeeting::has_capacity(std::uint32_t from) {
    if (from <= static_cast<std::uint32_t>(rank_) || from >= peers_.size() || !peers_[from].wanted)
        return false;
    std::size_t count = 0;
    for (const Incoming &other : authenticated_)
        if (other.acceptor.claim().from == from) ++count;
    return count < max_attempts;
}

// ---- waiting ----

void TcpMeeting::wait() {
    std::vector<pollfd> entries;
    if (listener_.open() && !paused_) entries.push_back({listener_.get(), POLLIN, 0});
    for (const auto &[from, list] : unauthenticated_)
        for (const Incoming &incoming : list) entries.push_back({incoming.socket.get(), POLLIN, 0});
    for (const Incoming &incoming : authenticated_)
        entries.push_back({incoming.socket.get(), POLLIN, 0});
    for (const Outgoing &outgoing : outgoing_)
        for (const Attempt &attempt : outgoing.attempts) {
            const bool connecting = attempt.phase == Attempt::connecting;
            // An attempt that waits for the confirmed one is not polled.
            if (attempt.phase == Attempt::greeted && outgoing.confirmed) continue;
            entries.push_back(
                {attempt.socket.get(), static_cast<short>(connecting ? POLLOUT : POLLIN), 0});
        }
    poll(entries.data(), entries.size(), poll_milliseconds);
}

}  // namespace vescomm::internal
