// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// What processes tell one another over UCX. All pure functions: the tests throw hostile bytes at
// them without a network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "transport/memory_offer.h"
#include "transport/put_batch.h"
#include "transport/received_signals.h"
#include "transport/transport.h"

namespace vescomm {

// ---- messages ----

// The active message of UCX that carries everything.
inline constexpr unsigned ucx_message_id = 0;

enum class MessageKind : std::uint32_t {
    hello = 1,  // the sender's endpoint works
    welcome = 2,  // the sender has received the hello of the receiver
    piece = 3,  // bytes of a put, more follow
    put = 4,  // the last bytes of a put, if any, then its signal
    goodbye = 5,  // the sender has stopped this communicator on purpose
    batch = 6,  // bytes of several puts, then the signal of the last
};

// Precedes the bytes of every message. As it lies in memory: UCX itself does not join machines of
// different byte order. Messages of several communicators share an endpoint; the context tells them
// apart. A hello and a welcome have none: they are about the endpoint.
struct Message {
    MessageKind kind = MessageKind::put;
    std::uint32_t from = 0;  // number of the sending process on the fabric
    std::uint64_t token = 0;  // secret of the receiver, known to the ranks of this job only
    std::uint64_t number = 0;  // of the message, from 0, among all of this sender
    MemoryId memory = 0;
    SignalName signal;
    std::uint32_t called = 0;  // see Put
    std::uint64_t offset = 0;  // within the receiver's memory; of a batch none
    std::uint64_t bytes = 0;  // that follow this header
    std::uint64_t value = 0;  // of the signal
    std::uint64_t eager = 0;  // see Put
    std::uint32_t credit_flag = 0;
    std::uint32_t context = 0;
};
// The piece size over TCP leaves room for it (tcp_piece_bytes in ucx_worker.cc).
static_assert(sizeof(Message) == 80);

// Reads a header and checks whatever can be checked without knowing the communicator. Returns
// nullptr, or what is wrong with it. `message` is changed only where the sender can be told: the
// header has its length, knows the token, and names one of the processes.
const char *parse_message(const void *header, std::size_t header_bytes, std::uint64_t payload_bytes,
                          int processes, std::uint64_t token, Message &message) noexcept;

// ---- sealed: what is carried once, through the control plane ----
//
// UCX aborts the process on an address that it does not understand, so it travels with its length
// and an XXH3 checksum (sealed.h). Opening one that is damaged throws SYSTEM.

// How to reach the worker of a process.
struct Address {
    std::uint32_t ucx_major = 0;  // addresses of different versions of UCX do not mix
    std::uint32_t ucx_minor = 0;
    std::uint32_t rank = 0;
    std::uint64_t token = 0;
    std::string worker;
};

std::string seal(const Address &address);
Address open_address(std::string_view sealed, int rank);

}  // namespace vescomm
