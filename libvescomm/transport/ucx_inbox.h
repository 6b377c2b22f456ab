// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "transport/pool.h"
#include "transport/received_signals.h"
#include "transport/transport.h"
#include "transport/ucx_memories.h"
#include "transport/ucx_wire.h"

namespace vescomm {

class UcxContext;

// What arrives at this rank of one communicator. Nothing that does is trusted: a message that
// cannot be right breaks the communicator and changes nothing else.
//
// The bytes of a large put take time to arrive, while later messages of the same sender already do.
// Their bytes may go to their place meanwhile (unless it is the same place), but their signals wait
// in a queue until everything before them is there.
//
// Threads: everything under the mutex of the fabric, but for signalled().
class UcxInbox {
public:
    UcxInbox(const UcxLibrary &ucx, const UcxWorker &worker, UcxContext &context,
             std::size_t ranks);

    // Takes in a piece, put or batch of that rank. True: UCX is to keep the descriptor of its
    // rendezvous.
    bool receive(int peer, const Message &message, void *data, bool rendezvous) noexcept;

    // See Transport::expect().
    void expect(int peer, SignalName signal, std::uint64_t value) noexcept;

    // That rank has stopped: it waits until this one has let go of its puts by rendezvous. Those
    // that came early and were never expected are dropped.
    void give_up(int peer) noexcept;

    // Ignores whatever arrives from now on, and gives up what is parked. UCX may still write what
    // it has begun to, until writing() is false for all.
    void close() noexcept;

    // Whether a put of this peer has begun to arrive and not ended.
    bool receiving(int peer) const noexcept { return senders_[peer].first != nullptr; }
    // True: UCX writes a put of this peer to its place.
    bool writing(int peer) const noexcept { return senders_[peer].under_way > 0; }

    std::uint64_t signalled(int peer, SignalName signal) const noexcept {
        return senders_[peer].signals.read(signal);
    }

private:
    struct Sender;

    // A put that has begun to arrive.
    struct Arrival {
        Arrival *next = nullptr;
        UcxInbox *inbox = nullptr;
        Sender *sender = nullptr;
        PutMemory *memory = nullptr;
        Message message;
        std::uint64_t begin = 0, end = 0;  // of the memory, where it goes
        enum { parked, under_way, complete } state = complete;
        // While parked, behind an earlier put to the same place:
        void *rendezvous = nullptr;  // UCX's descriptor of a large put, or
        std::vector<std::byte> bytes;  // a copy of a small one
    };

    // A message that came early.
    struct Eager {
        Message message;
        void *rendezvous = nullptr;  // UCX's descriptor, or
        std::vector<std::byte> bytes;  // a copy
    };

    struct Sender {
        ReceivedSignals signals;
        ReceivedSignals expects;  // this rank of that sender
        std::deque<Eager> eager;  // in order
        std::uint64_t eager_bytes = 0;
        Arrival *first = nullptr;  // the queue, in order
        Arrival *last = nullptr;
        int under_way = 0;  // arrivals that UCX writes
        bool advancing = false;
    };

    static void bytes_arrived(void *request, ucs_status_t status, std::size_t bytes, void *arrival);

    static bool is_expected(const Sender &sender, const Message &message) noexcept;
    const char *keep(Sender &sender, const Message &message, void *data, bool rendezvous) noexcept;
    const char *take_in(Sender &sender, const Message &message, void *data,
                        bool rendezvous) noexcept;
    static void write(const PutMemory &memory, const Message &message, const void *data) noexcept;
    bool collides(const Arrival &arrival) const noexcept;
    void start(Arrival &arrival, void *rendezvous) noexcept;
    void advance(Sender &sender) noexcept;
    void raise(Sender &sender, const Message &message) noexcept;
    void lose(const Message &message, ucs_status_t status) noexcept;

    const UcxLibrary &ucx_;
    const UcxWorker &worker_;
    UcxContext &context_;
    std::vector<Sender> senders_;  // by rank
    Pool<Arrival> pool_;
    bool keep_data_ = false;  // the message at hand is parked, with UCX's descriptor
    bool closed_ = false;
};

}  // namespace vescomm
