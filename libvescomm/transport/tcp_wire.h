// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "transport/put_batch.h"
#include "transport/received_signals.h"
#include "transport/transport.h"

namespace vescomm::internal {

// The messages of the TCP transport: a header of fixed size, then the bytes that it announces.
//
//     ┌────────┬───────────────┬────────┬──────┬────────┬────── one connection, one direction
//     │ header │ bytes         │ header │ bytes│ header │
//     └────────┴───────────────┴────────┴──────┴────────┴──────
//
// Messages of several communicators share a connection; `context` identifies the communicator. The
// connection, which both ends have authenticated (tcp_handshake.h), identifies sender and receiver.

enum class TcpKind : std::uint32_t {
    piece = 1,  // bytes of a put; more follow
    put,  // the last bytes of a put, if any, then its signal
    batch,  // parts of several puts (put_batch.h), then the signal of the last one
    goodbye,  // the sender has stopped this communicator on purpose
    // eager_flow.h:
    request_to_send,  // the sender waits until the receiver grants the credit `signal` to `value`
    acknowledgement,  // eager puts of the receiver have taken effect: `value` in total
};

// The memory layout is the message format: both ends have the same byte order, which the handshake
// checks.
struct TcpMessage {
    TcpKind kind = TcpKind::put;
    std::uint32_t context = 0;
    MemoryId memory = 0;  // number of the receiver's memory
    SignalName signal;
    std::uint32_t signature = 0;  // see Put
    std::uint32_t credit_flag = 0;  // see Put
    std::uint32_t tag = 0;  // see Put
    std::uint64_t offset = 0;  // within the memory; 0 for a batch
    std::uint64_t bytes = 0;  // number of bytes that follow this header
    std::uint64_t value = 0;  // value of the signal
    std::uint64_t credit = 0;  // see Put
};
static_assert(sizeof(TcpMessage) == 64);

// Limit of the bytes of one message. Longer puts are split, so that other communicators are served
// in between and a cancelled put leaves few bytes to be sent.
inline constexpr std::uint64_t max_message_bytes = 512 << 10;

// Checks everything that does not depend on the communicator. Returns nullptr, or the fault.
const char *check_message(const TcpMessage &message) noexcept;

}  // namespace vescomm::internal
