// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/put_batch.h"
#include "transport/received_signals.h"
#include "transport/transport.h"

namespace vescomm::internal {

// Eager puts from one rank to one peer that have not taken effect, in bytes of eager_charge(). When
// they reach this limit, further puts wait for their credit. Equal on all ranks. Tests lower it.
inline std::atomic<std::uint64_t> eager_budget_bytes{std::uint64_t{64} << 20};

// Limit of the memory of the unexpected queue of one peer: the budget, and a margin for the last
// step within it and for the headers of messages. Only a peer that ignores its budget exceeds this
// limit.
inline std::uint64_t max_unexpected_bytes() noexcept {
    const std::uint64_t budget = eager_budget_bytes.load(std::memory_order_relaxed);
    return budget + budget / 16 + (std::uint64_t{4} << 20);
}

// The share of an eager put in the budget: its bytes, and what a receiver needs to keep it. The sum
// over the puts equals the sum over the messages in which a transport sends them.
inline constexpr std::uint64_t eager_signal_charge = 256;
constexpr std::uint64_t eager_charge(const Put &put) noexcept {
    return put.bytes + sizeof(BatchPart) + (put.value != 0 ? eager_signal_charge : 0);
}
// The same for a message of a transport: a piece, a batch, or the last bytes of a put.
template <typename Message>
constexpr std::uint64_t eager_charge_of(const Message &message) noexcept {
    using Kind = decltype(message.kind);
    if (message.kind == Kind::piece) return message.bytes;
    return message.bytes + (message.kind == Kind::batch ? 0 : sizeof(BatchPart)) +
           (message.value != 0 ? eager_signal_charge : 0);
}

// The kind of the message in which a transport sends a put, or a part of it.
template <typename Kind>
constexpr Kind message_kind(PutKind kind, bool batch, bool last) noexcept {
    if (kind == PutKind::request_to_send) return Kind::request_to_send;
    if (kind == PutKind::acknowledgement) return Kind::acknowledgement;
    if (batch) return Kind::batch;
    return last ? Kind::put : Kind::piece;
}

// Flow control of the eager puts of one communicator, in both directions.
//
//     sender                                              receiver
//       put ──────────────────────────────────────────►  takes effect, at once or later
//       put, put ... until the budget is used up
//       request to send (signal, value) ──────────────►  grants the credit, at once or later
//       ◄──────────────── signal raised to that value
//       ◄──────── acknowledgement (total of charges)        once for each quarter of the budget
//
// A sender whose budget is used up waits for the credit of its next put, as for a put that is not
// eager. It therefore waits for nothing but the start of the same operation on its receiver.
//
// Threads: under the mutex of the fabric, except has_budget().
class EagerFlow {
public:
    explicit EagerFlow(std::size_t ranks) : peers_(ranks) { answers_.reserve(ranks); }

    // ---- sender ----

    // True if the budget of the peer is not used up. By the thread that puts.
    bool has_budget(int peer) const noexcept {
        const Peer &its = at(peer);
        return its.sent - its.acknowledged.load(std::memory_order_relaxed) <
               eager_budget_bytes.load(std::memory_order_relaxed);
    }
    void add(const Put &put) noexcept { at(put.peer).sent += eager_charge(put); }
    // Returns true if a request to send is to be sent: none was sent for this value.
    bool request(int peer, SignalName credit, std::uint64_t value) noexcept;
    // An acknowledgement has arrived. Returns nullptr, or its fault.
    const char *acknowledge(int peer, std::uint64_t total) noexcept;

    // ---- receiver ----

    // An eager message has taken effect. Returns false if there is no memory left.
    bool consume(int peer, std::uint64_t charge) noexcept;
    // A request to send has arrived. `granted`: the value of the signal that this rank has granted.
    // Returns false if there is no memory left.
    bool take_request(int peer, SignalName credit, std::uint64_t value,
                      std::uint64_t granted) noexcept;
    // False: the peer has never sent a request.
    bool requested(int peer) const noexcept { return at(peer).requested; }
    // This rank grants a credit, whose value was `before` until now. Returns false if there is no
    // memory left.
    bool grant(int peer, SignalName credit, std::uint64_t before, std::uint64_t value) noexcept;

    // Answers of the receiver that are to be sent. `send` may cause further ones.
    bool has_answers() const noexcept { return !answers_.empty(); }
    template <typename Send>
    void answer(Send send) noexcept {
        for (std::size_t i = 0; i < answers_.size(); ++i) send(Put(answers_[i]));
        answers_.clear();
    }

private:
    struct Peer {
        // sender
        std::uint64_t sent = 0;  // total of the charges
        std::atomic<std::uint64_t> acknowledged{0};  // total that the peer has reported
        ReceivedSignals requests;  // values for which a request to send was sent
        // receiver
        std::uint64_t consumed = 0;  // total of the charges
        std::uint64_t reported = 0;  // total in the last acknowledgement
        bool requested = false;
        ReceivedSignals requested_values;  // highest value of each request
    };
    Peer &at(int peer) noexcept { return peers_[static_cast<std::size_t>(peer)]; }
    const Peer &at(int peer) const noexcept { return peers_[static_cast<std::size_t>(peer)]; }
    bool add_answer(const Put &answer) noexcept;

    std::vector<Peer> peers_;  // by rank
    std::vector<Put> answers_;
};

}  // namespace vescomm::internal
