// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/failure.h"
#include "transport/pool.h"
#include "transport/transport.h"
#include "transport/ucx_inbox.h"
#include "transport/ucx_library.h"
#include "transport/ucx_wire.h"

namespace vescomm {

class UcxEndpoint;

// A put that has not ended.
struct UcxPut {
    UcxPut *next = nullptr;
    bool active = false;  // taken, not ended
    Put put;
    std::uint64_t sent = 0;  // bytes handed to UCX
    bool complete = false;  // everything is, the signal included
    int under_way = 0;  // pieces that UCX has not sent
    ucp_mem_h source = nullptr;  // the registered memory that holds the bytes; nullptr: none
    std::uint32_t *uses = nullptr;  // of the target memory; nullptr: no bytes
    // Of a batch: the parts, one after another. The room is kept from put to put.
    std::vector<std::byte> batch;

    void clear() noexcept {
        put = {};
        sent = 0;
        complete = false;
        under_way = 0;
        source = nullptr;
        uses = nullptr;
        batch.clear();
    }
    bool is_batch() const noexcept { return !batch.empty(); }
    std::uint64_t bytes() const noexcept { return is_batch() ? batch.size() : put.bytes; }
    const std::byte *from() const noexcept { return is_batch() ? batch.data() : put.from; }
};

// A message that UCX has not sent; it reads the header until then.
struct UcxPiece {
    UcxPiece *next = nullptr;
    UcxEndpoint *endpoint = nullptr;
    UcxPut *put = nullptr;  // nullptr: not of a put
    Message message;
};

// What the endpoints of one transport share.
struct UcxOutbox {
    // Sends more of what waits; at most some of it, so that the caller also gets to receive.
    void pump() noexcept;

    // Tells the caller that a put is over, and takes it back.
    void end(UcxPut *put) noexcept;

    // Once the worker is gone: ends the puts whose requests it has taken along.
    void end_all() noexcept;

    const UcxLibrary &ucx;
    const UcxInbox &inbox;
    Failure &failure;
    const int rank;
    const std::uint64_t piece_bytes;  // that go into one message
    bool stopping = false;  // errors are expected
    Pool<UcxPut> puts;
    Pool<UcxPiece> pieces;
    std::vector<UcxEndpoint *> ready;  // those that can send more
};

// The connection from this rank to one peer. What it sends arrives in order.
class UcxEndpoint {
public:
    UcxEndpoint(UcxOutbox &outbox, ucp_worker_h worker, int peer)
        : outbox_(outbox), worker_(worker), peer_(peer) {}
    UcxEndpoint(const UcxEndpoint &) = delete;
    UcxEndpoint &operator=(const UcxEndpoint &) = delete;

    int peer() const { return peer_; }

    // Begins to connect; idle() once the network has. Until then nothing may be sent: a message
    // that waits for its connection makes UCX 1.13 abort when the peer dies. Throws.
    void connect(const Address &address);

    // Sends a message that is not a put, ahead of the puts that wait.
    void tell(MessageKind kind) noexcept;

    // Takes a put from the pool and gives it back when it has ended, in any case. Small parts of
    // a put that follows (Put::value) wait for it, to be one message.
    void push(UcxPut *put) noexcept;

    // Sends what can be sent at once, up to a limit.
    void pump() noexcept;

    // UCX has sent all that it was given.
    bool idle() const { return under_way_ == 0; }

    // Gives up everything. Progress of the worker afterwards ends what UCX still holds.
    void close() noexcept;

private:
    static void connected(void *request, ucs_status_t status, void *self);
    static void piece_sent(void *request, ucs_status_t status, void *piece);
    static void endpoint_failed(void *self, ucp_ep_h endpoint, ucs_status_t status);

    bool join_batch(UcxPut *put) noexcept;
    void enqueue(UcxPut *put) noexcept;
    void send_piece(UcxPut &put) noexcept;
    void send(UcxPiece *piece, const std::byte *from, ucp_mem_h source) noexcept;
    void end_when_sent(UcxPut *put) noexcept;
    void get_ready() noexcept;
    void drop_queue() noexcept;
    void fail(ucs_status_t status, const char *doing) noexcept;

    UcxOutbox &outbox_;
    ucp_worker_h worker_;
    const int peer_;
    ucp_ep_h endpoint_ = nullptr;
    std::uint64_t token_ = 0;
    std::uint64_t messages_ = 0;
    UcxPut *first_ = nullptr;  // the puts that are not complete, in order
    UcxPut *last_ = nullptr;
    UcxPut *open_ = nullptr;  // a batch that waits for its last part
    std::uint64_t stretch_bytes_ = 0;  // sent since the queue was last empty
    int under_way_ = 0;
    bool ready_ = false;
    bool failed_ = false;
};

}  // namespace vescomm
