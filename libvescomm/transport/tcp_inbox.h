// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/failure.h"
#include "transport/pool.h"
#include "transport/put_memories.h"
#include "transport/received_signals.h"
#include "transport/tcp_wire.h"

namespace vescomm {

// A message that came before its receiver expected it (Put::early).
struct TcpUnexpected {
    TcpUnexpected *next = nullptr;
    TcpMessage message;
    std::vector<std::byte> bytes;  // the room is kept from message to message
};

// Where the bytes of a message go that arrive bit by bit.
struct TcpLanding {
    std::byte *to = nullptr;  // nullptr: nowhere, they are read and dropped
    PutMemory *memory = nullptr;  // that they are written to directly
    TcpUnexpected *unexpected = nullptr;  // that keeps them
};

// What arrives at this rank of one communicator. Messages come from authenticated peers, in order,
// and are not trusted all the same: one that cannot be right breaks the communicator and changes
// nothing else.
//
// Threads: the owner serialises all calls, except signalled(), which may be called by any thread.
// Zone: per operation; memory is allocated only when more comes unexpected than ever before.
class TcpInbox {
public:
    TcpInbox(int rank, std::size_t ranks, Failure &failure, PutMemories &memories);

    // See Transport::expect().
    void expect(int peer, SignalName signal, std::uint64_t value) noexcept;

    std::uint64_t signalled(int peer, SignalName signal) const noexcept {
        return senders_[static_cast<std::size_t>(peer)].signals.read(signal);
    }

    // Takes in a message of which all bytes are here.
    void receive(int peer, const TcpMessage &message, const std::byte *bytes) noexcept;

    // The same in two steps, for a put of which some bytes are still to come. Not for batches.
    TcpLanding begin(int peer, const TcpMessage &message) noexcept;
    void end(int peer, const TcpMessage &message, const TcpLanding &landing) noexcept;
    // Instead of end(): the rest does not come, or is not taken.
    void give_up(const TcpLanding &landing) noexcept;

    // Breaks the communicator because of a message.
    void refuse(int peer, const char *why) noexcept;

    // Whether a signal has been raised since the last call.
    bool take_news() noexcept;

private:
    struct Sender {
        ReceivedSignals signals;
        ReceivedSignals expects;  // what this rank expects of that sender
        TcpUnexpected *first = nullptr;  // the unexpected messages, in order
        TcpUnexpected *last = nullptr;
        std::uint64_t unexpected_bytes = 0;
    };

    static bool is_expected(const Sender &sender, const TcpMessage &message) noexcept;
    const char *find(const TcpMessage &message, PutMemory *&memory) noexcept;
    TcpUnexpected *keep(int peer, const TcpMessage &message) noexcept;
    void queue(Sender &sender, TcpUnexpected *unexpected) noexcept;
    void give_back(TcpUnexpected *unexpected) noexcept;
    void take_in(int peer, const TcpMessage &message, const std::byte *bytes) noexcept;
    void raise(int peer, const TcpMessage &message) noexcept;

    const int rank_;
    Failure &failure_;
    PutMemories &memories_;
    std::vector<Sender> senders_;  // by rank
    Pool<TcpUnexpected> pool_;
    bool news_ = false;
};

}  // namespace vescomm
