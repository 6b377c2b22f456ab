// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/failure.h"
#include "transport/eager_flow.h"
#include "transport/free_list.h"
#include "transport/put_memories.h"
#include "transport/received_signals.h"
#include "transport/tcp_wire.h"

namespace vescomm::internal {

// An eager message that arrived before its receiver had granted the credit (Put::credit).
struct TcpUnexpected {
    TcpUnexpected *next = nullptr;
    TcpMessage message;
    std::vector<std::byte> bytes;  // the capacity is kept from message to message
};

// Destination of the bytes of a message that arrives in pieces.
struct TcpLanding {
    std::byte *to = nullptr;  // nullptr: the bytes are read and dropped
    PutMemory *memory = nullptr;  // memory into which they are written directly; nullptr: none
    // message of the unexpected queue that holds them; nullptr: none
    TcpUnexpected *unexpected = nullptr;
};

// Incoming messages of one communicator at this rank. Messages come from authenticated peers and in
// order, but are not trusted: an invalid message fails the communicator and changes nothing else.
//
// Threads: the owner serialises all calls, except signalled(), which may be called by any thread.
// Zone: per operation; memory is allocated only when more messages are unexpected than ever before.
class TcpInbox {
public:
    TcpInbox(int rank, std::size_t ranks, Failure &failure, PutMemories &memories);

    // See Transport::grant_credit().
    void grant_credit(int peer, SignalName signal, std::uint64_t value) noexcept;

    std::uint64_t signalled(int peer, SignalName signal) const noexcept {
        return senders_[static_cast<std::size_t>(peer)].signals.read(signal);
    }

    // Handles a message that has arrived completely.
    void receive(int peer, const TcpMessage &message, const std::byte *bytes) noexcept;

    // Handle a message in two steps while some of its bytes are still to come. Not for batches.
    TcpLanding begin(int peer, const TcpMessage &message) noexcept;
    void end(int peer, const TcpMessage &message, const TcpLanding &landing) noexcept;
    // Replaces end() if the rest of the message will not arrive or is not wanted.
    void give_up(const TcpLanding &landing) noexcept;

    // Fails the communicator because of an invalid message.
    void refuse(int peer, const char *why) noexcept;

    // True if, since the last call, a signal has been raised, an acknowledgement has arrived, or an
    // answer to a peer has been added.
    bool take_news() noexcept;

    // Flow control of eager puts. Its answers are to be sent.
    EagerFlow flow;

private:
    struct Sender {
        ReceivedSignals signals;
        ReceivedSignals granted;  // the credit that this rank has granted to the sender
        TcpUnexpected *first = nullptr;  // the unexpected queue, in order
        TcpUnexpected *last = nullptr;
        std::uint64_t unexpected_bytes = 0;
    };

    static bool has_credit(const Sender &sender, const TcpMessage &message) noexcept;
    const char *find(const TcpMessage &message, PutMemory *&memory) noexcept;
    TcpUnexpected *keep(int peer, const TcpMessage &message) noexcept;
    void queue(Sender &sender, TcpUnexpected *unexpected) noexcept;
    void give_back(TcpUnexpected *unexpected) noexcept;
    void take_in(int peer, const TcpMessage &message, const std::byte *bytes) noexcept;
    void raise(int peer, const TcpMessage &message) noexcept;
    void consume(int peer, const TcpMessage &message) noexcept;
    void take_request(int peer, const TcpMessage &message) noexcept;
    void take_acknowledgement(int peer, const TcpMessage &message) noexcept;

    const int rank_;
    Failure &failure_;
    PutMemories &memories_;
    std::vector<Sender> senders_;  // by rank
    FreeList<TcpUnexpected> free_list_;
    bool news_ = false;
};

}  // namespace vescomm::internal
