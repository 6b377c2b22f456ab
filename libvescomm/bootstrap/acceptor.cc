// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/acceptor.h"

namespace vescomm::internal {

namespace {

// A handshake takes one round trip. The limit allows for a machine that is busy loading programs.
constexpr auto max_handshake_time = std::chrono::seconds(10);

}  // namespace

struct Acceptor::Pending {
    Pending(std::unique_ptr<Stream> stream, std::string_view secret, Cookies &cookies,
            Clock::time_point now)
        : stream(std::move(stream)), handshake(secret, cookies), since(now) {}

    std::unique_ptr<Stream> stream;
    ServerHandshake handshake;
    Clock::time_point since;
    bool greeted = false;
    Place place;
};

Acceptor::Acceptor(Network &network, std::string_view secret, Admit admit)
    : network_(network), secret_(secret), admit_(std::move(admit)) {}

Acceptor::~Acceptor() {
    close();
}

void Acceptor::listen(const TcpAddress &address) {
    listeners_.push_back(network_.listen(
        address, [this](std::unique_ptr<Stream> stream) { accept(std::move(stream)); }));
}

void Acceptor::listen_with(int descriptor) {
    listeners_.push_back(network_.listen_with(
        descriptor, [this](std::unique_ptr<Stream> stream) { accept(std::move(stream)); }));
}

void Acceptor::close() {
    listeners_.clear();
    silent_.clear();
    greeted_.clear();
    starved_since_ = {};
}

TcpAddress Acceptor::address() const {
    return listeners_.empty() ? TcpAddress{} : listeners_.front()->address();
}

void Acceptor::tidy() {
    for (auto *list : {&silent_, &greeted_})
        while (!list->empty() && network_.now() - list->front()->since > max_handshake_time)
            drop(list->front());
    bool starved = false;
    for (const auto &listener : listeners_) {
        if (!listener->starved()) continue;
        starved = true;
        // Pending connections are the only descriptors that the acceptor can release.
        if (pending() > 0) drop_oldest();
        listener->retry();
    }
    if (!starved) starved_since_ = {};
    else if (starved_since_ == Clock::time_point{}) starved_since_ = network_.now();
}

void Acceptor::drop_oldest() {
    auto &list = silent_.empty() ? greeted_ : silent_;
    if (!list.empty()) drop(list.front());
}

void Acceptor::accept(std::unique_ptr<Stream> stream) {
    starved_since_ = {};
    while (pending() >= max_pending) drop_oldest();
    const auto pending =
        std::make_shared<Pending>(std::move(stream), secret_, cookies_, network_.now());
    pending->place = silent_.insert(silent_.end(), pending);
    // The callbacks belong to the stream, which the pending connection owns.
    const std::weak_ptr<Pending> weak = pending;
    // The bytes are read before the next connection is accepted, which may drop this one. They may
    // admit a process, and this object may be gone afterwards.
    pending->stream->start_at_once({[this, weak](std::string_view bytes) {
                                        if (const auto kept = weak.lock()) read(kept, bytes);
                                    },
                                    [this, weak](const std::string &) {
                                        const auto kept = weak.lock();
                                        if (!kept) return;
                                        if (kept->greeted) ++abandoned_;
                                        drop(kept);
                                    },
                                    nullptr});
}

void Acceptor::read(const std::shared_ptr<Pending> &pending, std::string_view bytes) {
    std::string reply;
    const ServerHandshake::State state = pending->handshake.read(bytes, reply, network_.now());
    if (!reply.empty()) pending->stream->write(reply);
    if (pending->handshake.greeted() && !pending->greeted) {
        pending->greeted = true;
        greeted_.splice(greeted_.end(), silent_, pending->place);
    }
    switch (state) {
        case ServerHandshake::State::waiting:
            // An empty socket always takes a few hundred bytes. A peer that does not read them is
            // not a process of the job.
            if (!pending->stream->drained()) drop(pending);
            return;
        case ServerHandshake::State::rejected:
            return drop(pending);
        case ServerHandshake::State::joined:
            break;
    }
    Joined joined{pending->handshake.claim(), std::move(pending->stream),
                  pending->handshake.take_keys(), std::string(bytes)};
    greeted_.erase(pending->place);
    admit_(std::move(joined));
}

void Acceptor::drop(const std::shared_ptr<Pending> &pending) {
    // The argument may refer to the element of the list that is erased.
    // NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
    const auto kept = pending;
    (kept->greeted ? greeted_ : silent_).erase(kept->place);
}

}  // namespace vescomm::internal
