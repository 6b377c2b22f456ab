// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/failure.h"
#include "transport/transport.h"
#include "transport/ucx_memories.h"
#include "transport/ucx_signals.h"
#include "transport/ucx_wire.h"

namespace vescomm {

// The active message of UCX that carries everything.
inline constexpr unsigned ucx_message_id = 0;

// What arrives at this rank. Nothing that does is trusted: a message that cannot be right breaks the
// communicator and changes nothing else.
class UcxInbox {
public:
    UcxInbox(int rank, const std::vector<bool> &peers, Failure &failure, UcxMemories &memories);

    // Has messages to the worker delivered here.
    void open(const UcxLibrary &ucx, ucp_worker_h worker);

    // Ignores whatever arrives from now on.
    void close() noexcept { closed_ = true; }

    // What a message must know to be taken in.
    std::uint64_t token() const { return token_; }

    bool heard(int peer, MessageKind kind) const noexcept;
    std::uint64_t signalled(int peer, SignalName signal) const noexcept {
        return senders_[peer].signals.read(signal);
    }

    // Whether a signal has arrived since the last call.
    bool take_news() noexcept;

private:
    struct Sender {
        bool expected = false;
        bool said_hello = false;
        bool welcomed = false;
        bool said_goodbye = false;
        std::uint64_t messages = 0;
        ReceivedSignals signals;
    };

    static ucs_status_t message_arrived(void *inbox, const void *header, std::size_t header_bytes,
                                        void *payload, std::size_t payload_bytes,
                                        const ucp_am_recv_param_t *parameters);
    const char *receive(const Message &message, const void *payload) noexcept;
    const char *take_in(Sender &sender, const Message &message, const void *payload) noexcept;
    void refuse(const Message &message, const char *why) noexcept;

    const int rank_;
    const std::uint64_t token_;
    Failure &failure_;
    UcxMemories &memories_;
    std::vector<Sender> senders_;  // by rank
    bool news_ = false;
    bool closed_ = false;
};

}  // namespace vescomm
