// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/tcp_door.h"

#include <sys/socket.h>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <optional>
#include <system_error>

namespace vescomm {

namespace {

// A handshake takes one round trip. This leaves room for a machine that is busy loading programs.
constexpr auto patience = std::chrono::seconds(10);
// Accepted in a row before others have their turn.
constexpr int accepted_at_once = 64;

// Waits on a descriptor that it owns; asio only borrows it.
struct Waiter {
    Waiter(EventLoop &loop, Descriptor descriptor)
        : owner(std::move(descriptor)), handle(loop.context(), owner.get()) {}
    ~Waiter() { take(); }

    // A wait that is ready already may still be reported afterwards: look at owner.open().
    Descriptor take() {
        if (owner.open()) handle.release();
        return std::move(owner);
    }

    Descriptor owner;
    asio::posix::stream_descriptor handle;
};

}  // namespace

struct TcpDoor::Listener : Waiter {
    using Waiter::Waiter;
    // Nothing could be accepted, for want of descriptors: not before the next tidy().
    bool resting = false;
};

struct TcpDoor::Guest : Waiter {
    Guest(EventLoop &loop, Descriptor socket, std::string_view secret)
        : Waiter(loop, std::move(socket)), doorkeeper(secret) {}

    Doorkeeper doorkeeper;
    Clock::time_point came = Clock::now();
    std::list<std::shared_ptr<Guest>>::iterator place;
};

TcpDoor::TcpDoor(EventLoop &loop, std::vector<Descriptor> listeners, std::string_view secret,
                 std::size_t guests, Announce announce)
    : loop_(loop), secret_(secret), most_guests_(guests), announce_(std::move(announce)) {
    for (Descriptor &listener : listeners)
        listeners_.push_back(std::make_shared<Listener>(loop_, std::move(listener)));
}

TcpDoor::~TcpDoor() {
    close();
}

void TcpDoor::open() {
    for (const auto &listener : listeners_) wait_for_guests(listener);
}

void TcpDoor::close() {
    for (const auto &listener : listeners_) listener->take();
    listeners_.clear();
    while (!guests_.empty()) send_away(guests_.front());
}

void TcpDoor::tidy(Clock::time_point now) {
    while (!guests_.empty() && now - guests_.front()->came > patience) send_away(guests_.front());
    for (const auto &listener : listeners_) {
        if (!listener->resting) continue;
        listener->resting = false;
        wait_for_guests(listener);
    }
}

void TcpDoor::wait_for_guests(const std::shared_ptr<Listener> &listener) {
    listener->handle.async_wait(asio::posix::descriptor_base::wait_read,
                                [this, listener](const std::error_code &error) {
                                    if (!error) accept_some(listener);
                                });
}

void TcpDoor::accept_some(const std::shared_ptr<Listener> &listener) {
    for (int i = 0; i < accepted_at_once && listener->owner.open(); ++i) {
        Descriptor socket(
            accept4(listener->owner.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (socket.open()) {
            receive(std::move(socket));
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            // Waiting again now would only spin: the connection is still there to accept.
            listener->resting = true;
            return;
        }
        if (errno == EAGAIN) break;
        // Anything else concerns the connection that was to be accepted, which is gone.
    }
    if (listener->owner.open()) wait_for_guests(listener);
}

void TcpDoor::receive(Descriptor socket) {
    while (guests_.size() >= most_guests_) send_away(guests_.front());
    const auto guest = std::make_shared<Guest>(loop_, std::move(socket), secret_);
    guest->place = guests_.insert(guests_.end(), guest);
    wait_for_words(guest);
}

void TcpDoor::wait_for_words(const std::shared_ptr<Guest> &guest) {
    guest->handle.async_wait(asio::posix::descriptor_base::wait_read,
                             [this, guest](const std::error_code &error) {
                                 if (!error) hear(guest);
                             });
}

void TcpDoor::hear(const std::shared_ptr<Guest> &guest) {
    if (!guest->owner.open()) return;
    char buffer[256];
    const ssize_t got = recv(guest->owner.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return wait_for_words(guest);
    if (got <= 0) return send_away(guest);

    std::string_view bytes(buffer, static_cast<std::size_t>(got));
    std::string reply;
    const Doorkeeper::State state = guest->doorkeeper.read(bytes, reply);
    // Some hundred bytes always fit an empty socket; who does not take them is no rank.
    if (!reply.empty() && send(guest->owner.get(), reply.data(), reply.size(),
                               MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(reply.size()))
        return send_away(guest);
    switch (state) {
        case Doorkeeper::State::waiting:
            return wait_for_words(guest);
        case Doorkeeper::State::stray:
            return send_away(guest);
        case Doorkeeper::State::joined:
            guests_.erase(guest->place);
            announce_({guest->doorkeeper.claim(), guest->take(), guest->doorkeeper.take_session(),
                       std::string(bytes)});
            return;
    }
}

void TcpDoor::send_away(const std::shared_ptr<Guest> &guest) {
    // The argument may be the list's own.
    // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
    const auto kept = guest;
    guests_.erase(kept->place);
    kept->take();
}

}  // namespace vescomm
