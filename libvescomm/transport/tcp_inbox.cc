// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp_inbox.h"

#include <cstring>
#include <string>
#include <utility>

namespace vescomm::internal {
namespace {

// The memory that a message takes in the queue. Messages without bytes are limited too.
std::uint64_t cost_of(const TcpMessage &message) {
    return sizeof(TcpUnexpected) + message.bytes;
}

}  // namespace

TcpInbox::TcpInbox(int rank, std::size_t ranks, Failure &failure, PutMemories &memories)
    : flow(ranks), rank_(rank), failure_(failure), memories_(memories), senders_(ranks) {}

bool TcpInbox::take_news() noexcept {
    return std::exchange(news_, false);
}

bool TcpInbox::has_credit(const Sender &sender, const TcpMessage &message) noexcept {
    if (message.credit == 0) return true;
    return sender.granted.read({message.signal.channel, message.credit_flag}) >= message.credit;
}

// Finds the target memory of a message, if it has bytes. Returns nullptr, or the fault.
const char *TcpInbox::find(const TcpMessage &message, PutMemory *&memory) noexcept {
    memory = nullptr;
    if (message.bytes == 0) return nullptr;
    if (const char *why = memories_.find_offered(message.memory, memory)) return why;
    if (message.kind != TcpKind::batch && !within(message.offset, message.bytes, memory->bytes))
        return "its bytes do not fit into the memory";
    return nullptr;
}

// ---- arrivals ----

void TcpInbox::receive(int peer, const TcpMessage &message, const std::byte *bytes) noexcept {
    if (failure_.broken()) return;
    if (message.kind == TcpKind::request_to_send) return take_request(peer, message);
    if (message.kind == TcpKind::acknowledgement) return take_acknowledgement(peer, message);
    Sender &sender = senders_[static_cast<std::size_t>(peer)];
    if (has_credit(sender, message)) return take_in(peer, message, bytes);
    TcpUnexpected *unexpected = keep(peer, message);
    if (unexpected == nullptr) return;
    if (message.bytes > 0) std::memcpy(unexpected->bytes.data(), bytes, message.bytes);
    queue(sender, unexpected);
}

TcpLanding TcpInbox::begin(int peer, const TcpMessage &message) noexcept {
    TcpLanding landing;
    if (failure_.broken()) return landing;
    if (!has_credit(senders_[static_cast<std::size_t>(peer)], message)) {
        landing.unexpected = keep(peer, message);
        if (landing.unexpected != nullptr) landing.to = landing.unexpected->bytes.data();
        return landing;
    }
    const char *why = find(message, landing.memory);
    if (why != nullptr) {
        landing.memory = nullptr;
        refuse(peer, why);
    } else if (landing.memory != nullptr) {
        ++landing.memory->uses;
        landing.to = landing.memory->base + message.offset;
    }
    return landing;
}

void TcpInbox::end(int peer, const TcpMessage &message, const TcpLanding &landing) noexcept {
    if (landing.memory != nullptr) {
        --landing.memory->uses;
        raise(peer, message);
    }
    if (landing.unexpected == nullptr) return;
    // The credit may have been granted meanwhile; the message was not in the queue that
    // grant_credit() searched.
    Sender &sender = senders_[static_cast<std::size_t>(peer)];
    if (!has_credit(sender, message)) return queue(sender, landing.unexpected);
    take_in(peer, message, landing.unexpected->bytes.data());
    give_back(landing.unexpected);
}

void TcpInbox::give_up(const TcpLanding &landing) noexcept {
    if (landing.memory != nullptr) --landing.memory->uses;
    if (landing.unexpected != nullptr) free_list_.give_back(landing.unexpected);
}

void TcpInbox::take_in(int peer, const TcpMessage &message, const std::byte *bytes) noexcept {
    PutMemory *memory = nullptr;
    const char *why = find(message, memory);
    if (why == nullptr && memory != nullptr && message.kind == TcpKind::batch)
        why = check_batch(bytes, message.bytes, memory->bytes);
    if (why != nullptr) return refuse(peer, why);
    if (memory != nullptr && message.kind == TcpKind::batch)
        scatter_batch(bytes, message.bytes, memory->base);
    else if (memory != nullptr && message.bytes > 0)
        std::memcpy(memory->base + message.offset, bytes, message.bytes);
    raise(peer, message);
}

// Called for each message that has taken effect.
void TcpInbox::raise(int peer, const TcpMessage &message) noexcept {
    if (message.credit != 0) consume(peer, message);
    if (message.kind == TcpKind::piece) return;
    ReceivedSignals &signals = senders_[static_cast<std::size_t>(peer)].signals;
    bool raised = signals.raise(message.signal, message.value);
    if (message.signature != 0 && message.tag != 0)
        raised &= signals.raise({message.signal.channel, tag_flag},
                                signature_value(message.value, message.tag));
    if (message.signature != 0)
        raised &= signals.raise({message.signal.channel, signature_flag_for(message.bytes)},
                                signature_value(message.value, message.signature));
    if (!raised) refuse(peer, "there is no memory left for its channel");
    news_ = true;
}

// ---- flow control ----

void TcpInbox::consume(int peer, const TcpMessage &message) noexcept {
    if (!flow.consume(peer, eager_charge_of(message)))
        refuse(peer, "there is no memory left to acknowledge it");
    news_ |= flow.has_answers();
}

void TcpInbox::take_request(int peer, const TcpMessage &message) noexcept {
    const Sender &sender = senders_[static_cast<std::size_t>(peer)];
    if (!flow.take_request(peer, message.signal, message.value,
                           sender.granted.read(message.signal)))
        refuse(peer, "there is no memory left to answer it");
    news_ |= flow.has_answers();
}

void TcpInbox::take_acknowledgement(int peer, const TcpMessage &message) noexcept {
    if (const char *why = flow.acknowledge(peer, message.value)) return refuse(peer, why);
    news_ = true;
}

// ---- unexpected messages ----

TcpUnexpected *TcpInbox::keep(int peer, const TcpMessage &message) noexcept {
    Sender &sender = senders_[static_cast<std::size_t>(peer)];
    if (sender.unexpected_bytes + cost_of(message) > max_unexpected_bytes()) {
        refuse(peer, "it is too much to be kept until it is expected");
        return nullptr;
    }
    TcpUnexpected *unexpected = free_list_.take();
    try {
        if (unexpected != nullptr) unexpected->bytes.resize(message.bytes);
    } catch (...) {
        free_list_.give_back(std::exchange(unexpected, nullptr));
    }
    if (unexpected == nullptr) {
        refuse(peer, "there is no memory left to keep it until it is expected");
        return nullptr;
    }
    unexpected->message = message;
    return unexpected;
}

void TcpInbox::queue(Sender &sender, TcpUnexpected *unexpected) noexcept {
    (sender.first == nullptr ? sender.first : sender.last->next) = unexpected;
    sender.last = unexpected;
    unexpected->next = nullptr;
    sender.unexpected_bytes += cost_of(unexpected->message);
}

// Large messages are rare: their memory returns to the system.
void TcpInbox::give_back(TcpUnexpected *unexpected) noexcept {
    constexpr std::size_t max_kept_bytes = 256 << 10;
    if (unexpected->bytes.capacity() > max_kept_bytes)
        std::vector<std::byte>().swap(unexpected->bytes);
    free_list_.give_back(unexpected);
}

void TcpInbox::grant_credit(int peer, SignalName signal, std::uint64_t value) noexcept {
    Sender &sender = senders_[static_cast<std::size_t>(peer)];
    const bool answered =
        !flow.requested(peer) || flow.grant(peer, signal, sender.granted.read(signal), value);
    if (!sender.granted.raise(signal, value) || !answered)
        return refuse(peer, "there is no memory left for its credit");
    TcpUnexpected *before = nullptr;
    for (TcpUnexpected *at = sender.first; at != nullptr && !failure_.broken();) {
        TcpUnexpected *next = at->next;
        if (!has_credit(sender, at->message)) {
            before = at;
        } else {
            (before == nullptr ? sender.first : before->next) = next;
            if (sender.last == at) sender.last = before;
            sender.unexpected_bytes -= cost_of(at->message);
            take_in(peer, at->message, at->bytes.data());
            give_back(at);
        }
        at = next;
    }
}

// ---- failures ----

void TcpInbox::refuse(int peer, const char *why) noexcept {
    if (failure_.broken()) return;
    try {
        failure_.set(VESCOMM_ERROR_PEER_FAILED,
                     "rank " + std::to_string(rank_) + " received a message of rank " +
                         std::to_string(peer) + " over TCP that cannot be right: " + why +
                         "; all ranks must run the same version of vescomm");
    } catch (...) {
        failure_.set(VESCOMM_ERROR_PEER_FAILED, {});
    }
}

}  // namespace vescomm::internal
