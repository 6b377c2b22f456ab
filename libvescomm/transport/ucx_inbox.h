// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/failure.h"
#include "transport/pool.h"
#include "transport/received_signals.h"
#include "transport/transport.h"
#include "transport/ucx_memories.h"
#include "transport/ucx_wire.h"

namespace vescomm {

// The active message of UCX that carries everything.
inline constexpr unsigned ucx_message_id = 0;

// What arrives at this rank. Nothing that does is trusted: a message that cannot be right breaks
// the communicator and changes nothing else.
//
// The bytes of a large put take time to arrive, while later messages of the same sender already do.
// Their bytes may go to their place meanwhile (unless it is the same place), but their signals wait
// in a queue until everything before them is there.
class UcxInbox {
public:
    UcxInbox(const UcxLibrary &ucx, ucp_worker_h worker, int rank, const std::vector<bool> &peers,
             Failure &failure, UcxMemories &memories);

    // Has messages delivered here from now on. Throws.
    void open();

    // Ignores whatever arrives from now on, and gives up what is parked.
    void close() noexcept;

    // What a message must know to be taken in.
    std::uint64_t token() const { return token_; }

    // See Transport::expect().
    void expect(int peer, SignalName signal, std::uint64_t value) noexcept;

    bool heard(int peer, MessageKind kind) const noexcept;

    // Whether a put of this peer has begun to arrive and not ended.
    bool receiving(int peer) const noexcept { return senders_[peer].first != nullptr; }

    std::uint64_t signalled(int peer, SignalName signal) const noexcept {
        return senders_[peer].signals.read(signal);
    }

    // Whether a signal has arrived since the last call.
    bool take_news() noexcept;

private:
    struct Sender;

    // A put that has begun to arrive.
    struct Arrival {
        Arrival *next = nullptr;
        UcxInbox *inbox = nullptr;
        Sender *sender = nullptr;
        UcxMemory *memory = nullptr;
        Message message;
        std::uint64_t begin = 0, end = 0;  // of the memory, where it goes
        enum { parked, under_way, complete } state = complete;
        // While parked, behind an earlier put to the same place:
        void *rendezvous = nullptr;  // UCX's descriptor of a large put, or
        std::vector<std::byte> bytes;  // a copy of a small one
    };

    // A message that came early.
    struct Early {
        Message message;
        void *rendezvous = nullptr;  // UCX's descriptor, or
        std::vector<std::byte> bytes;  // a copy
    };

    struct Sender {
        bool expected = false;
        bool said_hello = false;
        bool welcomed = false;
        bool said_goodbye = false;
        std::uint64_t messages = 0;
        ReceivedSignals signals;
        ReceivedSignals expects;  // this rank of that sender
        std::deque<Early> early;  // in order
        std::uint64_t early_bytes = 0;
        Arrival *first = nullptr;  // the queue, in order
        Arrival *last = nullptr;
        bool advancing = false;
    };

    static ucs_status_t message_arrived(void *inbox, const void *header, std::size_t header_bytes,
                                        void *data, std::size_t data_bytes,
                                        const ucp_am_recv_param_t *parameters);
    static void bytes_arrived(void *request, ucs_status_t status, std::size_t bytes, void *arrival);

    const char *receive(const Message &message, void *data, bool rendezvous) noexcept;
    static bool is_expected(const Sender &sender, const Message &message) noexcept;
    const char *keep(Sender &sender, const Message &message, void *data, bool rendezvous) noexcept;
    const char *take_in(Sender &sender, const Message &message, void *data,
                        bool rendezvous) noexcept;
    static void write(const UcxMemory &memory, const Message &message, const void *data) noexcept;
    bool collides(const Arrival &arrival) const noexcept;
    void start(Arrival &arrival, void *rendezvous) noexcept;
    void advance(Sender &sender) noexcept;
    void raise(Sender &sender, const Message &message) noexcept;
    void refuse(const Message &message, const char *why) noexcept;
    void lose(const Message &message, ucs_status_t status) noexcept;

    const UcxLibrary &ucx_;
    ucp_worker_h worker_;
    const int rank_;
    const std::uint64_t token_;
    Failure &failure_;
    UcxMemories &memories_;
    std::vector<Sender> senders_;  // by rank
    Pool<Arrival> pool_;
    bool keep_data_ = false;  // the message at hand is parked, with UCX's descriptor
    bool news_ = false;
    bool closed_ = false;
};

}  // namespace vescomm
