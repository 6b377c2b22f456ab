// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "transport/put_batch.h"
#include "transport/received_signals.h"
#include "transport/transport.h"

namespace vescomm {

// The messages of the TCP transport: a header of fixed size, then the bytes that it announces.
//
//     ┌────────┬───────────────┬────────┬──────┬────────┬────── one connection, one direction
//     │ header │ bytes         │ header │ bytes│ header │
//     └────────┴───────────────┴────────┴──────┴────────┴──────
//
// Messages of several communicators share a connection; the context tells them apart. Sender and
// receiver are known by the connection, which both ends have authenticated (tcp_handshake.h).

enum class TcpKind : std::uint32_t {
    piece = 1,  // bytes of a put, more follow
    put,  // the last bytes of a put, if any, then its signal
    batch,  // parts of several puts (put_batch.h), then the signal of the last one
    goodbye,  // the sender has stopped this communicator on purpose
};

// As it lies in memory: both ends have the same byte order, which the handshake compares.
struct TcpMessage {
    TcpKind kind = TcpKind::put;
    std::uint32_t context = 0;
    MemoryId memory = 0;  // of the receiver
    SignalName signal;
    std::uint32_t called = 0;  // see Put
    std::uint32_t credit_flag = 0;  // see Put
    std::uint32_t reserved = 0;
    std::uint64_t offset = 0;  // within the memory; 0 for a batch
    std::uint64_t bytes = 0;  // that follow this header
    std::uint64_t value = 0;  // of the signal
    std::uint64_t eager = 0;  // see Put
};
static_assert(sizeof(TcpMessage) == 64);

// Limit of the bytes of one message. Longer puts are several, so that those of other communicators
// get their turn, and so that a put which is given up leaves little to be sent.
inline constexpr std::uint64_t max_message_bytes = 512 << 10;

// Checks what can be checked without knowing the communicator. Returns nullptr, or what is wrong.
const char *check_message(const TcpMessage &message) noexcept;

}  // namespace vescomm
