// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp_fabric.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>

#include "base/error.h"
#include "base/system.h"
#include "transport/checksummed.h"
#include "transport/tcp_meeting.h"
#include "transport/tcp_receiver.h"
#include "transport/tcp_segment.h"
#include "transport/tcp_sender.h"

namespace vescomm::internal {

struct TcpConnection {
    TcpConnection(TcpShared &shared, int process, Descriptor made)
        : process(process),
          socket(std::move(made)),
          receiver(shared, process),
          sender(shared, socket.get()) {}

    const int process;
    Descriptor socket;
    TcpReceiver receiver;
    TcpSender sender;
    std::uint32_t watched = 0;  // events that epoll reports
    bool lost = false;
};

namespace {

// Up to this many connections are read without epoll_wait(): a read that finds nothing costs no
// more than that call.
constexpr std::size_t max_read_unasked = 4;

// Segments in each direction per call of progress(), so that a busy network cannot hold the caller.
constexpr int max_rounds = 8;

// The address of a rank, sent to all ranks.
constexpr std::uint32_t address_magic = 0x41544356;  // "VCTA"
struct AddressHead {
    TcpSession session{};
    std::uint32_t port = 0;
    std::uint8_t encrypted = 0;
    std::uint8_t big_endian = 0;
    std::uint8_t reserved[2] = {};
};

constexpr bool is_big_endian = std::endian::native == std::endian::big;

AddressHead head_of(const TcpMeeting &meeting, bool encrypted) {
    AddressHead head;
    head.session = meeting.session();
    head.port = meeting.port();
    head.encrypted = encrypted ? 1 : 0;
    head.big_endian = is_big_endian ? 1 : 0;
    return head;
}

// Decodes the addresses of all ranks. Throws if the ranks disagree.
std::vector<TcpPeer> read_addresses(const std::vector<std::string> &all, std::size_t self,
                                    const std::vector<bool> &peers, bool encrypted) {
    std::vector<TcpPeer> read(all.size());
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        AddressHead head;
        const std::string host = split_checksummed(address_magic, all[rank],
                                                   "the TCP address of " + rank_name(rank), head);
        if ((head.encrypted != 0) != encrypted)
            throw Error(VESCOMM_ERROR_MISMATCH,
                        rank_name(self) + (encrypted ? " encrypts" : " does not encrypt") +
                            " what it sends to other nodes, and " + rank_name(rank) +
                            (encrypted ? " does not" : " does") +
                            "; set VESCOMM_ENCRYPTION to the same on all ranks");
        if ((head.big_endian != 0) != is_big_endian)
            throw Error(VESCOMM_ERROR_MISMATCH,
                        rank_name(self) + " and " + rank_name(rank) +
                            " run on machines of different byte order, which the transport tcp "
                            "does not join");
        read[rank].wanted = peers[rank];
        read[rank].address = {host, static_cast<std::uint16_t>(head.port)};
        read[rank].session = head.session;
    }
    return read;
}

}  // namespace

// ---- set-up ----

std::shared_ptr<TcpFabric> TcpFabric::connect(Control &control, const std::vector<bool> &peers,
                                              const TcpFabricOptions &options,
                                              const Failure &failure, Deadline deadline) {
    const auto rank = static_cast<std::size_t>(control.rank());
    const std::string interface = control.local_address();
    if (interface.empty())
        throw Error(VESCOMM_ERROR_SYSTEM,
                    rank_name(rank) +
                        " does not know which of its interfaces reaches the other "
                        "nodes; its control plane has no connection to them");
    TcpMeeting meeting(control.derive_key("vescomm tcp"), control.rank(), options.encrypted);
    // Every rank connects to lower ranks, so only a rank with higher peers listens.
    const auto after = peers.begin() + static_cast<std::ptrdiff_t>(rank) + 1;
    if (std::find(after, peers.end(), true) != peers.end()) meeting.listen(interface);
    const auto all = control.all_gather(
        "tcp addresses",
        join_checksummed(address_magic, head_of(meeting, options.encrypted), interface), deadline);
    std::vector<TcpEstablished> established =
        meeting.meet(read_addresses(all, rank, peers, options.encrypted), failure, deadline);

    std::shared_ptr<TcpFabric> fabric(new TcpFabric(peers.size()));
    for (std::size_t peer = 0; peer < established.size(); ++peer)
        if (established[peer].socket.open())
            fabric->add(static_cast<int>(peer), std::move(established[peer].socket),
                        options.encrypted ? &established[peer].keys : nullptr, peer > rank);
    return fabric;
}

TcpFabric::TcpFabric(std::size_t processes) : process_(getpid()) {
    shared_.epoll = Descriptor(epoll_create1(EPOLL_CLOEXEC));
    if (!shared_.epoll.open()) throw system_error("cannot create an epoll descriptor");
    shared_.staging.resize(segment_bytes);
    connections_.resize(processes);
}

void TcpFabric::add(int process, Descriptor socket, const TcpKeys *keys, bool accepted) {
    auto connection = std::make_unique<TcpConnection>(shared_, process, std::move(socket));
    if (keys != nullptr) {
        connection->sender.encrypt(accepted ? keys->from_acceptor : keys->to_acceptor);
        connection->receiver.encrypt(accepted ? keys->to_acceptor : keys->from_acceptor);
    }
    if (!watch(*connection, EPOLLIN)) throw system_error("cannot watch a connection");
    open_.push_back(connection.get());
    connections_[static_cast<std::size_t>(process)] = std::move(connection);
}

TcpFabric::~TcpFabric() {
    if (inherited()) return;  // a child may only close its copies of the descriptors
    for (TcpConnection *connection : open_) {
        // With unread bytes in the socket, the kernel would discard bytes that are still to be
        // sent.
        shutdown(connection->socket.get(), SHUT_WR);
        constexpr int max_reads = 256;
        for (int i = 0; i < max_reads; ++i)
            if (recv(connection->socket.get(), shared_.staging.data(), shared_.staging.size(),
                     MSG_DONTWAIT) <= 0)
                break;
    }
}

bool TcpFabric::inherited() const noexcept {
    return getpid() != process_;
}

bool TcpFabric::connects(int process) const noexcept {
    const std::lock_guard lock(mutex_);
    return reaches(process) && !connections_[static_cast<std::size_t>(process)]->lost;
}

// ---- communicators ----

void TcpFabric::open(TcpContext &context) {
    const std::lock_guard lock(mutex_);
    shared_.add(context, "TCP");
    for (const TcpConnection *connection : open_)
        if (connection->lost) context.lose(connection->process, false, "it was lost before");
}

void TcpFabric::close(TcpContext &context, double patience_seconds) noexcept {
    std::unique_lock lock(mutex_);
    for (TcpConnection *connection : open_) {
        const int peer = context.rank_of(connection->process);
        if (peer < 0) continue;
        connection->receiver.give_up(context);
        connection->sender.drop(context.queues[static_cast<std::size_t>(peer)]);
        connection->sender.say_goodbye(context.id);
        check(*connection);
    }
    shared_.contexts.erase(context.id);
    std::erase(shared_.news, &context);
    // Sends the goodbyes, so that peers that are about to stop do not report the end as a failure.
    const Deadline deadline = Deadline::after(patience_seconds);
    while (owes(context) && !deadline.expired()) {
        if (step() || !arm_locked()) continue;
        lock.unlock();
        pollfd descriptor{shared_.epoll.get(), POLLIN, 0};
        poll(&descriptor, 1, 1);
        lock.lock();
    }
}

// True if bytes of a closed communicator are still to be sent.
bool TcpFabric::owes(const TcpContext &context) const noexcept {
    return std::any_of(open_.begin(), open_.end(), [&](const TcpConnection *connection) {
        return !connection->lost && connection->sender.owes(context.id);
    });
}

void TcpFabric::put(TcpContext &context, int process, const Put &put, PutMemory *memory) noexcept {
    TcpConnection &connection = *connections_[static_cast<std::size_t>(process)];
    TcpQueue &queue = context.queues[static_cast<std::size_t>(put.peer)];
    connection.sender.send(queue, put, memory != nullptr ? &memory->uses : nullptr);
    check(connection);
}

// ---- progress ----

bool TcpFabric::progress() noexcept {
    // The thread that holds the mutex advances everything and wakes the threads that wait for it.
    std::unique_lock lock(mutex_, std::try_to_lock);
    return lock.owns_lock() && step();
}

bool TcpFabric::step() noexcept {
    bool moved = false;
    if (open_.size() <= max_read_unasked) {
        for (TcpConnection *connection : open_) {
            connection->sender.unblock();
            moved |= step(*connection);
        }
    } else {
        epoll_event events[64];
        const int count = epoll_wait(shared_.epoll.get(), events, 64, 0);
        for (int i = 0; i < count; ++i) {
            auto &connection = *static_cast<TcpConnection *>(events[i].data.ptr);
            if ((events[i].events & EPOLLOUT) != 0) connection.sender.unblock();
            moved |= step(connection);
            if (!connection.sender.waiting() && !connection.lost) watch(connection, EPOLLIN);
        }
        for (TcpConnection *connection : open_)
            if (connection->sender.waiting() && !connection->sender.blocked())
                moved |= step(*connection);
    }
    return shared_.deliver_news(*this) || moved;
}

bool TcpFabric::step(TcpConnection &connection) noexcept {
    if (connection.lost) return false;
    bool moved = false;
    for (int round = 0; round < max_rounds; ++round) {
        bool any = connection.sender.waiting() && connection.sender.pump();
        any |= receive(connection);
        moved |= any;
        // A signal that has arrived is handled before more is read.
        if (!any || connection.lost || !shared_.news.empty()) break;
    }
    check(connection);
    return moved;
}

bool TcpFabric::receive(TcpConnection &connection) noexcept {
    bool moved = false;
    if (connection.receiver.read(connection.socket.get(), moved) == TcpReceiver::State::failed)
        lose(connection, connection.receiver.why());
    return moved;
}

bool TcpFabric::arm() noexcept {
    const std::lock_guard lock(mutex_);
    return arm_locked();
}

bool TcpFabric::arm_locked() noexcept {
    if (!shared_.news.empty()) return false;
    for (TcpConnection *connection : open_) {
        if (connection->lost) continue;
        const bool waiting = connection->sender.waiting();
        if (waiting && !connection->sender.blocked()) return false;
        watch(*connection, waiting ? EPOLLIN | EPOLLOUT : EPOLLIN);
    }
    return true;
}

// ---- connections ----

// Called after every action that may have failed or left bytes to be sent.
void TcpFabric::check(TcpConnection &connection) noexcept {
    if (connection.lost) return;
    if (connection.sender.failed()) {
        // Messages that arrived before the end must still be read: the peer may have said goodbye.
        bool moved = false;
        while (connection.receiver.read(connection.socket.get(), moved) ==
               TcpReceiver::State::more) {
        }
        return lose(connection, connection.sender.why());
    }
    // The calling thread may not return, and another thread may be asleep: epoll must report the
    // socket.
    if (connection.sender.blocked() && connection.sender.waiting())
        watch(connection, EPOLLIN | EPOLLOUT);
}

// Sets the events of a connection that epoll reports; 0: none. Returns false if the system refused.
bool TcpFabric::watch(TcpConnection &connection, std::uint32_t events) noexcept {
    if (connection.watched == events) return true;
    epoll_event event{};
    event.events = events;
    event.data.ptr = &connection;
    const int change = events == 0               ? EPOLL_CTL_DEL
                       : connection.watched == 0 ? EPOLL_CTL_ADD
                                                 : EPOLL_CTL_MOD;
    if (epoll_ctl(shared_.epoll.get(), change, connection.socket.get(), &event) != 0) return false;
    connection.watched = events;
    return true;
}

void TcpFabric::lose(TcpConnection &connection, const std::string &why) noexcept {
    if (connection.lost) return;
    connection.lost = true;
    // epoll would report the end of the connection for ever.
    watch(connection, 0);
    for (const auto &[id, context] : shared_.contexts) {
        const bool busy =
            connection.receiver.receiving(*context) || connection.sender.sends_put(context->id);
        context->lose(connection.process, busy, why);
        connection.receiver.give_up(*context);
        shared_.note(*context);
        const int peer = context->rank_of(connection.process);
        if (peer >= 0) connection.sender.drop(context->queues[static_cast<std::size_t>(peer)]);
    }
    connection.sender.close();
}

}  // namespace vescomm::internal
