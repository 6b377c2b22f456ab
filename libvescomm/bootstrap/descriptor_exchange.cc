// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/descriptor_exchange.h"

#include <fcntl.h>

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/system.h"
#include "bootstrap/frame.h"
#include "bootstrap/os_network.h"

namespace vescomm::internal {

namespace {

constexpr std::size_t name_bytes = 16;
constexpr std::size_t token_bytes = 32;

// The answer without a descriptor. An answer with one is Stream::descriptor_byte.
constexpr std::string_view refused = "n";
static_assert(refused[0] != Stream::descriptor_byte);

std::string random_hex(std::size_t bytes) {
    static constexpr char digits[] = "0123456789abcdef";
    const Nonce nonce = random_nonce();
    std::string text;
    for (std::size_t i = 0; i < bytes; ++i) {
        text += digits[nonce[i] >> 4];
        text += digits[nonce[i] & 15];
    }
    return text;
}

}  // namespace

// ---- the server ----

std::string DescriptorServer::offer(int descriptor) {
    if (!listener_) {
        name_ = "vescomm-" + random_hex(name_bytes);
        listener_ = network_.listen_local(
            name_, [this](std::unique_ptr<Stream> stream) { accept(std::move(stream)); });
    }
    Descriptor copy(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    if (!copy.open()) throw system_error("cannot copy a descriptor that others are to share");
    // Any user can list the names of sockets, but not the token.
    std::string ticket = name_ + random_hex(token_bytes);
    offers_.emplace(ticket, std::move(copy));
    return ticket;
}

void DescriptorServer::accept(std::unique_ptr<Stream> stream) {
    if (!stream->same_user()) return;
    // The oldest connection has had the longest time to send its ticket, which takes one message.
    if (pending_.size() >= max_pending) pending_.pop_front();
    const Place pending = pending_.insert(pending_.end(), {std::move(stream), {}});
    pending->stream->start({[this, pending](std::string_view bytes) { read(pending, bytes); },
                            [this, pending](const std::string &) { pending_.erase(pending); },
                            nullptr});
}

void DescriptorServer::read(Place pending, std::string_view bytes) {
    pending->received += bytes;
    if (pending->received.size() < 2 * token_bytes) return;
    // The lookup uses the complete value. A wrong ticket gets the same answer as a withdrawn one.
    const auto offer = offers_.find(name_ + pending->received);
    if (offer == offers_.end()) pending->stream->write(refused);
    else pending->stream->write_descriptor(offer->second.get());
    pending_.erase(pending);
}

// ---- the client ----

DescriptorFetch::DescriptorFetch(Network &network, const std::string &ticket, Done done)
    : token_(ticket.substr(std::min(ticket.size(), ticket.size() - 2 * token_bytes))),
      done_(std::move(done)) {
    attempt_ =
        network.connect_local(ticket.substr(0, ticket.size() - token_.size()),
                              [this](std::unique_ptr<Stream> stream, const std::string &why) {
                                  connected(std::move(stream), why);
                              });
}

void DescriptorFetch::connected(std::unique_ptr<Stream> stream, const std::string &why) {
    if (stream == nullptr) return finish({}, why);
    stream_ = std::move(stream);
    if (!stream_->same_user()) return finish({}, "it belongs to another user");
    stream_->start({[this](std::string_view bytes) {
                        if (bytes.empty() || bytes[0] != Stream::descriptor_byte)
                            return finish({}, "it does not know this ticket any more");
                        Descriptor descriptor = stream_->take_descriptor();
                        if (!descriptor.open())
                            return finish({},
                                          "the descriptor was lost; this process may have as many "
                                          "files open as it may (ulimit -n)");
                        finish(std::move(descriptor), {});
                    },
                    [this](const std::string &how) { finish({}, "its connection " + how); },
                    nullptr});
    stream_->write(token_);
}

void DescriptorFetch::finish(Descriptor descriptor, const std::string &why) {
    if (!done_) return;
    const Done done = std::exchange(done_, nullptr);
    done(std::move(descriptor), why);
}

// ---- for other threads ----

struct DescriptorExchange::Fetch::State {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    Descriptor descriptor;
    std::string why;
    std::unique_ptr<DescriptorFetch> fetch;  // the network's thread only
};

DescriptorExchange::DescriptorExchange(OsNetwork &network)
    : network_(network), server_(std::make_unique<DescriptorServer>(network)) {}

DescriptorExchange::~DescriptorExchange() {
    network_.run([this] { server_.reset(); });
}

DescriptorExchange::Offer DescriptorExchange::offer(int descriptor) {
    std::string ticket;
    network_.run([&] { ticket = server_->offer(descriptor); });
    return Offer(*this, std::move(ticket));
}

void DescriptorExchange::withdraw(const std::string &ticket) noexcept {
    try {
        network_.run([&] { server_->withdraw(ticket); });
    } catch (...) {
        // Out of memory: the descriptor stays open until the session ends.
    }
}

DescriptorExchange::Fetch DescriptorExchange::fetch(const std::string &ticket) {
    if (ticket.size() <= 2 * token_bytes)
        throw Error(VESCOMM_ERROR_INTERNAL, "a ticket for a descriptor has the wrong size");
    Fetch fetch;
    fetch.state_ = std::make_shared<Fetch::State>();
    network_.post([&network = network_, ticket, weak = std::weak_ptr(fetch.state_)] {
        const auto state = weak.lock();
        if (!state) return;
        state->fetch = std::make_unique<DescriptorFetch>(
            network, ticket, [&network, weak](Descriptor descriptor, const std::string &why) {
                const auto kept = weak.lock();
                if (!kept) return;
                {
                    const std::lock_guard lock(kept->mutex);
                    kept->descriptor = std::move(descriptor);
                    kept->why = why;
                    kept->done = true;
                    kept->changed.notify_all();
                }
                // The fetch makes this call, so it is destroyed later.
                network.post([ended = std::shared_ptr<DescriptorFetch>(std::move(kept->fetch))] {});
            });
    });
    return fetch;
}

std::optional<Descriptor> DescriptorExchange::Fetch::test() {
    const std::lock_guard lock(state_->mutex);
    if (!state_->done) return std::nullopt;
    if (!state_->descriptor.open())
        throw Error(
            VESCOMM_ERROR_SYSTEM,
            "a process that is said to be on this node does not share its memory: " + state_->why +
                "; if it is on another machine, give the ranks different "
                "names in VESCOMM_NODE");
    return std::move(state_->descriptor);
}

Descriptor DescriptorExchange::Fetch::wait(Deadline deadline, int rank, int owner) {
    for (;;) {
        if (auto descriptor = test()) return std::move(*descriptor);
        if (deadline.expired())
            throw Error(
                VESCOMM_ERROR_TIMEOUT,
                fmt::format("rank {} did not share its memory with rank {} in time; see whether "
                            "it is still running",
                            owner, rank));
        if (interrupted())
            throw Error(
                VESCOMM_ERROR_ABORTED,
                fmt::format("rank {} was interrupted while it waited for the memory of rank {}",
                            rank, owner));
        std::unique_lock lock(state_->mutex);
        state_->changed.wait_until(lock, next_interrupt(deadline.moment()),
                                   [&] { return state_->done; });
    }
}

}  // namespace vescomm::internal
