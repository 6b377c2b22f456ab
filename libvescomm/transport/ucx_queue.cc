// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_queue.h"

#include <algorithm>
#include <utility>

#include "transport/eager_flow.h"
#include "transport/ucx_context.h"
#include "transport/ucx_endpoint.h"

namespace vescomm::internal {
namespace {

// Pieces of one communicator that UCX may hold for one peer while the network takes no more. The
// limit suffices to restart the network when it takes more; all other pieces wait in this queue,
// where they can be dropped. Each communicator has its own limit, because a put by rendezvous stays
// with UCX until its receiver expects it, which may be after the receiver has taken puts of another
// communicator.
constexpr int max_under_way = 8;

// Pieces handed to UCX per call, 2 MiB over TCP, so that incoming bytes do not wait for long.
constexpr int max_at_once = 16;

// After this many bytes without a break, one piece is handed over per call. Outgoing and incoming
// bytes then alternate in the cache instead of evicting each other: 64 MiB between two hosts in
// both directions takes 11.5 instead of 16.5 ms. A short put is faster without breaks: 2 MiB takes
// 245 instead of 290 us.
constexpr std::uint64_t long_stretch_bytes = 2 << 20;

}  // namespace

void UcxQueue::push(UcxPut *put) noexcept {
    put->active = true;
    if (join_batch(put)) return;
    if (open_ != nullptr) enqueue(std::exchange(open_, nullptr));
    enqueue(put);
}

// Returns true if the put is small and has become part of a batch.
bool UcxQueue::join_batch(UcxPut *put) noexcept {
    const Put &part = put->put;
    const bool last = part.value != 0;
    if (part.bytes > max_part_bytes || part.bytes == 0 || (last && open_ == nullptr)) return false;
    if (open_ != nullptr &&
        (open_->put.memory != part.memory || open_->put.credit != part.credit ||
         open_->put.credit_flag != part.credit_flag ||
         open_->batch.size() + part.bytes > max_batch_bytes - sizeof(BatchPart)))
        enqueue(std::exchange(open_, nullptr));
    if (last && open_ == nullptr) return false;
    if (dropped_) return false;
    UcxPut *batch = open_ != nullptr ? open_ : put;
    try {
        append_part(batch->batch, part.offset, part.from, part.bytes);
    } catch (...) {
        run_out();
        return false;
    }
    if (batch == put) {
        // The source of this part may be reused at once; the batch takes its `pending` from the
        // last part.
        if (part.pending != nullptr) part.pending->fetch_sub(1, std::memory_order_release);
        put->put.pending = nullptr;
        put->source = nullptr;
        open_ = put;
        return true;
    }
    batch->put.signal = part.signal;
    batch->put.value = part.value;
    batch->put.signature = part.signature;
    batch->put.tag = part.tag;
    if (last) batch->put.pending = std::exchange(put->put.pending, nullptr);
    shared_.end(put);
    if (last) enqueue(std::exchange(open_, nullptr));
    return true;
}

void UcxQueue::enqueue(UcxPut *put) noexcept {
    if (dropped_) {
        put->complete = true;
        return end_when_sent(put);
    }
    (first_ == nullptr ? first_ : last_->next) = put;
    last_ = put;
    if (first_ != put) return;
    stretch_bytes_ = 0;
    pump();
}

void UcxQueue::pump() noexcept {
    ready_ = false;
    for (int pieces = 0; first_ != nullptr && under_way_ < max_under_way; ++pieces) {
        UcxPut *put = first_;
        if (pieces == (stretch_bytes_ < long_stretch_bytes ? max_at_once : 1)) return get_ready();
        send_piece(*put);
        if (first_ != put) return;  // the endpoint failed, and this queue was dropped
        if (!put->complete) continue;
        first_ = put->next;
        end_when_sent(put);
    }
}

void UcxQueue::send_piece(UcxPut &put) noexcept {
    UcxPiece *piece = shared_.pieces.take();
    if (piece == nullptr) return run_out();
    const std::uint64_t offset = put.sent;
    const std::uint64_t bytes = std::min(put.bytes() - offset, shared_.worker.piece_bytes());
    put.sent += bytes;
    stretch_bytes_ += bytes;
    put.complete = put.sent == put.bytes();

    piece->queue = this;
    piece->put = &put;
    piece->message = {};
    piece->message.kind = message_kind<MessageKind>(put.put.kind, put.is_batch(), put.complete);
    piece->message.context = context_.id;
    piece->message.memory = put.put.memory;
    piece->message.signal = put.put.signal;
    piece->message.offset = put.is_batch() ? 0 : put.put.offset + offset;
    piece->message.bytes = bytes;
    piece->message.value = put.put.value;
    piece->message.signature = put.complete ? put.put.signature : 0;
    piece->message.tag = put.put.tag;
    piece->message.credit = put.put.credit;
    piece->message.credit_flag = put.put.credit_flag;
    endpoint_.send(piece, bytes == 0 ? nullptr : put.from() + offset, put.source);
    if (shared_.worker.over_tcp() && !endpoint_.failed() && put.complete) send_filler(put);
}

// Once UCX has taken the filler, it keeps no bytes of the put. The sender may make no progress
// after the end of the put, and would leave the receiver waiting for such bytes.
void UcxQueue::send_filler(UcxPut &put) noexcept {
    UcxPiece *piece = shared_.pieces.take();
    if (piece == nullptr) return run_out();
    piece->queue = this;
    piece->put = &put;
    piece->message = {};
    piece->message.kind = MessageKind::filler;
    piece->message.context = context_.id;
    endpoint_.send(piece, nullptr, nullptr);
}

// Ends a put when all of it has been sent, including the signal. Its source could be reused
// earlier, but a caller whose puts have all ended may stop making progress, and then the signal
// would never be sent.
void UcxQueue::end_when_sent(UcxPut *put) noexcept {
    if (put->complete && put->under_way == 0) shared_.end(put);
}

void UcxQueue::drop() noexcept {
    dropped_ = true;
    if (UcxPut *open = std::exchange(open_, nullptr)) {
        open->complete = true;
        end_when_sent(open);
    }
    while (UcxPut *put = first_) {
        first_ = put->next;
        put->complete = true;
        end_when_sent(put);
    }
}

void UcxQueue::run_out() noexcept {
    context_.run_out();
    drop();
}

// ---- pieces ----

void UcxQueue::piece_begins(UcxPut &put) noexcept {
    ++under_way_;
    ++put.under_way;
}

void UcxQueue::piece_ends(UcxPut *put) noexcept {
    --under_way_;
    --put->under_way;
    // pump() ends the put at the head of the queue. UCX may report a lost connection while it is
    // given a piece. Then the queue has been dropped, and this call holds the last reference to the
    // put.
    if (put != first_) end_when_sent(put);
}

void UcxQueue::get_ready() noexcept {
    if (ready_ || first_ == nullptr) return;
    ready_ = true;
    shared_.ready.push_back(this);
}

}  // namespace vescomm::internal
