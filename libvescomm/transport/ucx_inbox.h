// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "transport/eager_flow.h"
#include "transport/free_list.h"
#include "transport/received_signals.h"
#include "transport/transport.h"
#include "transport/ucx_memories.h"
#include "transport/ucx_wire.h"

namespace vescomm::internal {

class UcxContext;

// Incoming messages of one communicator at this rank. Messages are not trusted: an invalid message
// fails the communicator and changes nothing else.
//
// The bytes of a large put take time to arrive, while later messages of the same sender arrive
// already. Bytes of later messages may be written meanwhile (unless the ranges overlap), but their
// signals wait in a queue until everything before them has arrived.
//
// Threads: everything under the mutex of the fabric, except signalled().
class UcxInbox {
public:
    UcxInbox(const UcxLibrary &ucx, const UcxWorker &worker, UcxContext &context,
             std::size_t ranks);

    // Handles a piece, put or batch of a rank. Returns true if UCX must keep the descriptor of its
    // rendezvous.
    bool receive(int peer, const UcxMessage &message, void *data, bool rendezvous) noexcept;

    // See Transport::grant_credit().
    void grant_credit(int peer, SignalName signal, std::uint64_t value) noexcept;

    // The peer has stopped and waits until this rank has released the peer's puts by rendezvous:
    // drops those that are still in the unexpected queue.
    void give_up(int peer) noexcept;

    // Ignores all further messages and drops parked ones. UCX may still complete writes that it has
    // begun, until writing() is false for all peers.
    void close() noexcept;

    // True if a put of this peer has begun to arrive and has not ended.
    bool receiving(int peer) const noexcept { return senders_[peer].first != nullptr; }
    // True if UCX is writing a put of this peer to its target.
    bool writing(int peer) const noexcept { return senders_[peer].under_way > 0; }

    std::uint64_t signalled(int peer, SignalName signal) const noexcept {
        return senders_[peer].signals.read(signal);
    }

    // Flow control of eager puts. Its answers are to be sent.
    EagerFlow flow;

private:
    struct Sender;

    // A put that has begun to arrive.
    struct Arrival {
        Arrival *next = nullptr;
        UcxInbox *inbox = nullptr;
        Sender *sender = nullptr;
        PutMemory *memory = nullptr;
        UcxMessage message;
        std::uint64_t begin = 0, end = 0;  // range of the memory that it writes
        enum { parked, under_way, complete } state = complete;
        // While parked behind an earlier put whose range overlaps:
        void *rendezvous = nullptr;  // UCX's descriptor of a large put, or
        std::vector<std::byte> bytes;  // a copy of a small one
    };

    // An eager message in the unexpected queue.
    struct Eager {
        UcxMessage message;
        void *rendezvous = nullptr;  // UCX's descriptor, or
        std::vector<std::byte> bytes;  // a copy of the bytes
    };
    // The memory that a message takes in the queue. Messages without bytes are limited too.
    static std::uint64_t cost_of(const UcxMessage &message) {
        return sizeof(Eager) + message.bytes;
    }

    struct Sender {
        ReceivedSignals signals;
        ReceivedSignals granted;  // the credit that this rank has granted to the sender
        std::deque<Eager> eager;  // the unexpected queue, in order
        std::uint64_t eager_bytes = 0;
        Arrival *first = nullptr;  // the arrivals, in order
        Arrival *last = nullptr;
        int under_way = 0;  // arrivals that UCX is writing
        bool advancing = false;
    };

    static void bytes_arrived(void *request, ucs_status_t status, std::size_t bytes, void *arrival);

    static bool has_credit(const Sender &sender, const UcxMessage &message) noexcept;
    const char *keep(Sender &sender, const UcxMessage &message, void *data,
                     bool rendezvous) noexcept;
    const char *take_in(Sender &sender, const UcxMessage &message, void *data,
                        bool rendezvous) noexcept;
    static void write(const PutMemory &memory, const UcxMessage &message,
                      const void *data) noexcept;
    bool collides(const Arrival &arrival) const noexcept;
    void start(Arrival &arrival, void *rendezvous) noexcept;
    void advance(Sender &sender) noexcept;
    void raise(Sender &sender, const UcxMessage &message) noexcept;
    const char *consume(int peer, const UcxMessage &message) noexcept;
    const char *take_request(int peer, const UcxMessage &message) noexcept;
    const char *take_acknowledgement(int peer, const UcxMessage &message) noexcept;
    void lose(const UcxMessage &message, ucs_status_t status) noexcept;

    const UcxLibrary &ucx_;
    const UcxWorker &worker_;
    UcxContext &context_;
    std::vector<Sender> senders_;  // by rank
    FreeList<Arrival> free_list_;
    bool keep_data_ = false;  // the current message is kept, with UCX's descriptor
    bool closed_ = false;
};

}  // namespace vescomm::internal
