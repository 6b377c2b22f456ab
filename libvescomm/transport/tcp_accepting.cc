// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp_accepting.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

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

// The host of an address, without its port.
std::string host_bytes(const SocketAddress &address) {
    const auto *inet = reinterpret_cast<const sockaddr_in *>(&address.storage);
    const auto *inet6 = reinterpret_cast<const sockaddr_in6 *>(&address.storage);
    if (address.family() == AF_INET6)
        return {reinterpret_cast<const char *>(&inet6->sin6_addr), sizeof inet6->sin6_addr};
    return {reinterpret_cast<const char *>(&inet->sin_addr), sizeof inet->sin_addr};
}

}  // namespace

// A connection that this rank has accepted.
struct TcpAccepting::Incoming {
    Incoming(Descriptor socket, const FrameKey &key, const TcpClaim &claim)
        : socket(std::move(socket)), acceptor(key, claim) {}

    Descriptor socket;
    TcpAcceptor acceptor;
    std::size_t wanted = tcp_hello_bytes;  // bytes missing of the message that the peer is sending
    Clock::time_point came = Clock::now();
    bool authenticated = false;
};

TcpAccepting::TcpAccepting(const TcpSelf &self)
    : self_(self), max_unauthenticated_(max_unauthenticated) {
    rlimit descriptors{};
    if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0)
        max_unauthenticated_ = std::min<std::size_t>(max_unauthenticated,
                                                     descriptors.rlim_cur / unauthenticated_share);
}

TcpAccepting::~TcpAccepting() = default;

void TcpAccepting::listen(const std::string &interface) {
    std::string why;
    const std::vector<SocketAddress> found = resolve_numeric({interface, 0}, why);
    if (found.empty())
        throw Error(VESCOMM_ERROR_SYSTEM, rank_name(static_cast<std::size_t>(self_.rank)) +
                                              " cannot listen for other nodes: " + why);
    const SocketAddress &address = found.front();
    listener_ = Descriptor(
        socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
    if (!listener_.open() || bind(listener_.get(), address.get(), address.length) != 0 ||
        ::listen(listener_.get(), SOMAXCONN) != 0)
        throw system_error(rank_name(static_cast<std::size_t>(self_.rank)) +
                           " cannot listen for other nodes on " + interface);
    port_ = port_of(listener_.get());
}

void TcpAccepting::advance(TcpRanks &ranks, Clock::time_point now) {
    accept_some(ranks);
    advance_unauthenticated(ranks, now);
}

void TcpAccepting::close() {
    listener_ = Descriptor();
    unauthenticated_.clear();
    authenticated_.clear();
}

void TcpAccepting::poll_for(std::vector<pollfd> &entries) const {
    if (listener_.open() && !paused_) entries.push_back({listener_.get(), POLLIN, 0});
    for (const auto &[from, list] : unauthenticated_)
        for (const Incoming &incoming : list) entries.push_back({incoming.socket.get(), POLLIN, 0});
    for (const Incoming &incoming : authenticated_)
        entries.push_back({incoming.socket.get(), POLLIN, 0});
}

void TcpAccepting::accept_some(TcpRanks &ranks) {
    paused_ = false;
    for (int i = 0; listener_.open() && i < max_accepted_at_once; ++i) {
        SocketAddress from;
        from.length = sizeof from.storage;
        Descriptor socket(accept4(listener_.get(), reinterpret_cast<sockaddr *>(&from.storage),
                                  &from.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (socket.open()) {
            take(ranks, std::move(socket), from);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            ranks.last_problem = reason(errno);
            paused_ = !evict_unauthenticated();
            if (paused_) break;
            continue;
        }
        if (errno == EAGAIN) break;
        // Any other error concerns the connection to be accepted, which is gone.
    }
    for (auto incoming = authenticated_.begin(); incoming != authenticated_.end();) {
        if (advance(ranks, *incoming)) ++incoming;
        else incoming = authenticated_.erase(incoming);
    }
}

// Most connections that do not come from a rank are closed here at once.
void TcpAccepting::take(TcpRanks &ranks, Descriptor socket, const SocketAddress &from) {
    const TcpClaim claim{self_.session, 0, static_cast<std::uint32_t>(self_.rank), self_.encrypted};
    set_option(socket.get(), TCP_NODELAY, 1);
    std::list<Incoming> made;
    made.emplace_back(std::move(socket), self_.key, claim);
    if (!advance(ranks, made.back())) return;
    if (made.back().authenticated) return authenticated_.splice(authenticated_.end(), made);
    std::list<Incoming> &same = unauthenticated_[host_bytes(from)];
    same.splice(same.end(), made);
    if (++unauthenticated_count_ > max_unauthenticated_) evict_unauthenticated();
}

// Closes the oldest connection of the address that has most of them, so that an address with many
// connections takes slots only from itself. Returns false if there is no connection.
bool TcpAccepting::evict_unauthenticated() {
    const auto max = std::max_element(
        unauthenticated_.begin(), unauthenticated_.end(),
        [](const auto &a, const auto &b) { return a.second.size() < b.second.size(); });
    if (max == unauthenticated_.end()) return false;
    max->second.pop_front();
    if (max->second.empty()) unauthenticated_.erase(max);
    --unauthenticated_count_;
    return true;
}

void TcpAccepting::advance_unauthenticated(TcpRanks &ranks, Clock::time_point now) {
    for (auto same = unauthenticated_.begin(); same != unauthenticated_.end();) {
        std::list<Incoming> &list = same->second;
        for (auto incoming = list.begin(); incoming != list.end();) {
            const auto next = std::next(incoming);
            const bool late = now - incoming->came > unauthenticated_patience;
            const bool open = !late && advance(ranks, *incoming);
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
bool TcpAccepting::advance(TcpRanks &ranks, Incoming &incoming) {
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
                if (!has_capacity(ranks, incoming.acceptor.claim().from) ||
                    !send_all(incoming.socket.get(), incoming.acceptor.answer()))
                    return false;
                incoming.authenticated = true;
                incoming.wanted = tcp_confirm_bytes;
                continue;
            case TcpAcceptor::State::confirmed:
                // Replaces an earlier connection: the peer confirms another one only after that one
                // has failed.
                if (send_all(incoming.socket.get(), incoming.acceptor.ready()))
                    ranks.established[incoming.acceptor.claim().from] = {std::move(incoming.socket),
                                                                         incoming.acceptor.keys()};
                return false;
            case TcpAcceptor::State::refused:
                return false;
        }
    }
}

// True if another handshake of a rank may begin; a rank makes at most max_attempts at a time.
bool TcpAccepting::has_capacity(const TcpRanks &ranks, std::uint32_t from) const {
    if (from <= static_cast<std::uint32_t>(self_.rank) || from >= ranks.peers.size() ||
        !ranks.peers[from].wanted)
        return false;
    std::size_t count = 0;
    for (const Incoming &other : authenticated_)
        if (other.acceptor.claim().from == from) ++count;
    return count < max_attempts;
}

}  // namespace vescomm::internal
