// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Messages between processes over UCX. All functions are pure, so that tests can feed them hostile
// bytes without a network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "transport/memory_offer.h"
#include "transport/put_batch.h"
#include "transport/received_signals.h"
#include "transport/transport.h"

namespace vescomm::internal {

// ---- messages ----

// Id of the one UCX active message that carries all messages.
inline constexpr unsigned ucx_message_id = 0;

enum class MessageKind : std::uint32_t {
    hello = 1,  // the sender's endpoint works
    welcome = 2,  // the sender has received the hello of the receiver
    piece = 3,  // bytes of a put; more follow
    put = 4,  // the last bytes of a put, if any, then its signal
    goodbye = 5,  // the sender has stopped this communicator on purpose
    batch = 6,  // parts of several puts, then the signal of the last one
    // eager_flow.h:
    request_to_send = 7,  // the sender waits until the receiver grants the credit `signal`
    acknowledgement = 8,  // eager puts of the receiver have taken effect: `value` in total
    filler = 9,  // means nothing; UCX takes it once it keeps no bytes of earlier messages
};

// Header of every message. The memory layout is the message format, because UCX itself does not
// connect machines of different byte order. Messages of several communicators share an endpoint;
// `context` identifies the communicator. A hello and a welcome have none: they concern the
// endpoint.
struct UcxMessage {
    MessageKind kind = MessageKind::put;
    std::uint32_t from = 0;  // number of the sending process on the fabric
    std::uint64_t token = 0;  // secret of the receiver, known to the ranks of this job only
    std::uint64_t number = 0;  // sequence number of the message among all of its sender, from 0
    MemoryId memory = 0;
    SignalName signal;
    std::uint32_t signature = 0;  // see Put
    std::uint64_t offset = 0;  // within the receiver's memory; 0 for a batch
    std::uint64_t bytes = 0;  // number of bytes that follow this header
    std::uint64_t value = 0;  // value of the signal
    std::uint64_t credit = 0;  // see Put
    std::uint32_t credit_flag = 0;
    std::uint32_t context = 0;
    std::uint32_t tag = 0;  // see Put
    std::uint32_t reserved = 0;
};
// The piece size over TCP reserves space for the header (tcp_piece_bytes in ucx_worker.cc).
static_assert(sizeof(UcxMessage) == 88);

// Parses a header and checks everything that does not depend on the communicator. Returns nullptr,
// or the fault. Sets `message` only if the sender can be identified: the header has its length,
// carries the token, and names one of the processes.
const char *parse_message(const void *header, std::size_t header_bytes, std::uint64_t payload_bytes,
                          int processes, std::uint64_t token, UcxMessage &message) noexcept;

// ---- addresses, carried once through the control plane ----
//
// UCX aborts the process on an address that it does not understand, so an address is sent with its
// length and an XXH3 checksum (checksummed.h). parse_ucx_address() throws SYSTEM if it is damaged.

// The address of the worker of a process.
struct UcxAddress {
    // UCX versions with different major or minor numbers cannot connect
    std::uint32_t ucx_major = 0;
    std::uint32_t ucx_minor = 0;
    std::uint32_t rank = 0;
    std::uint64_t token = 0;
    std::string worker;
};

std::string serialise(const UcxAddress &address);
UcxAddress parse_ucx_address(std::string_view serialised, int rank);

}  // namespace vescomm::internal
