// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "transport/ucx_shared.h"

namespace vescomm::internal {

// The puts of one communicator to one peer, which arrive there in order. The queues of all
// communicators share an endpoint round-robin, a few messages each.
//
// Threads: everything under the mutex of the fabric. Zone: per operation; no allocation once the
// pools are warm.
class UcxQueue {
public:
    UcxQueue(UcxShared &shared, UcxContext &context, UcxEndpoint &endpoint)
        : shared_(shared), context_(context), endpoint_(endpoint) {}
    UcxQueue(const UcxQueue &) = delete;
    UcxQueue &operator=(const UcxQueue &) = delete;

    UcxEndpoint &endpoint() const { return endpoint_; }

    // Takes over a put that came from the free list, and returns it to the free list when it has
    // ended. Small parts wait for the put that follows (Put::value), to be sent as one message.
    void push(UcxPut *put) noexcept;

    // Sends pieces without waiting, up to a limit.
    void pump() noexcept;

    // Drops all puts that UCX has not been given, now and from now on. UCX may still read the
    // sources of the others until idle().
    void drop() noexcept;

    // UCX has sent all pieces that it was given.
    bool idle() const { return under_way_ == 0; }
    // Some put has not ended.
    bool busy() const { return first_ != nullptr || open_ != nullptr || !idle(); }

    // ---- for the endpoint ----

    void piece_begins(UcxPut &put) noexcept;
    // UCX does not hold the piece any more.
    void piece_ends(UcxPut *put) noexcept;
    void get_ready() noexcept;

private:
    bool join_batch(UcxPut *put) noexcept;
    void enqueue(UcxPut *put) noexcept;
    void send_piece(UcxPut &put) noexcept;
    void send_filler(UcxPut &put) noexcept;
    void end_when_sent(UcxPut *put) noexcept;
    void run_out() noexcept;

    UcxShared &shared_;
    UcxContext &context_;
    UcxEndpoint &endpoint_;
    UcxPut *first_ = nullptr;  // the puts that are not complete, in order
    UcxPut *last_ = nullptr;
    UcxPut *open_ = nullptr;  // a batch that waits for its last part
    std::uint64_t stretch_bytes_ = 0;  // bytes sent since the queue was last empty
    int under_way_ = 0;  // pieces that UCX has not sent
    bool ready_ = false;  // the queue is in the list of ready queues of UcxShared
    bool dropped_ = false;
};

}  // namespace vescomm::internal
