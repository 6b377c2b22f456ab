// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Per operation: no allocation once the pools are warm, no lock, no system call but UCX's.
#include "transport/ucx_endpoint.h"

#include <algorithm>
#include <utility>

namespace vescomm {
namespace {

// Pieces that UCX may hold for one peer because the network takes no more: enough to find some when
// it does again. The others wait here, where they can be given up.
constexpr int most_under_way = 8;

// Pieces handed to UCX in one go, 2 MiB over TCP: what comes in meanwhile must not wait for long.
constexpr int most_at_once = 16;

// After so much without a break, one piece in one go: what is sent and what comes in then
// pass through the cache in turns, instead of driving one another out. 64 MiB between two hosts,
// both ways: 16.5 to 11.5 ms. A short put is sooner done in one go, 2 MiB in 245 instead of 290 us.
constexpr std::uint64_t long_stretch_bytes = 2 << 20;

}  // namespace

void UcxOutbox::pump() noexcept {
    // Those that get ready again meanwhile have their turn in the next call.
    const std::size_t count = ready.size();
    for (std::size_t i = 0; i < count; ++i) ready[i]->pump();
    ready.erase(ready.begin(), ready.begin() + static_cast<std::ptrdiff_t>(count));
}

void UcxOutbox::end(UcxPut *put) noexcept {
    if (put->put.pending != nullptr) put->put.pending->fetch_sub(1, std::memory_order_release);
    if (put->uses != nullptr) --*put->uses;
    put->active = false;
    puts.give_back(put);
}

void UcxOutbox::end_all() noexcept {
    puts.for_each([this](UcxPut &put) {
        if (put.active) end(&put);
    });
}

// ---- connection ----

void UcxEndpoint::connect(const Address &address) {
    token_ = address.token;
    ucp_ep_params_t parameters{};
    parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    parameters.address = reinterpret_cast<const ucp_address_t *>(address.worker.data());
    parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;  // must be the same on both sides
    parameters.err_handler.cb = endpoint_failed;
    parameters.err_handler.arg = this;
    outbox_.ucx.check(
        outbox_.ucx.ep_create(worker_, &parameters, &endpoint_),
        "UCX cannot connect rank " + std::to_string(outbox_.rank) + " to rank " +
            std::to_string(peer_) +
            "; check that UCX_TLS and UCX_NET_DEVICES name a network that both nodes share");

    ucp_request_param_t flush{};
    flush.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    flush.cb.send = connected;
    flush.user_data = this;
    void *request = outbox_.ucx.ep_flush_nbx(endpoint_, &flush);
    if (UCS_PTR_IS_PTR(request)) ++under_way_;
    if (UCS_PTR_IS_ERR(request)) fail(UCS_PTR_STATUS(request), "cannot connect");
}

void UcxEndpoint::connected(void *request, ucs_status_t status, void *self) {
    auto &endpoint = *static_cast<UcxEndpoint *>(self);
    endpoint.outbox_.ucx.request_free(request);
    --endpoint.under_way_;
    if (status != UCS_OK) endpoint.fail(status, "cannot connect");
}

void UcxEndpoint::close() noexcept {
    failed_ = true;
    drop_queue();
    if (endpoint_ == nullptr) return;
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void *request = outbox_.ucx.ep_close_nbx(endpoint_, &parameters);
    if (UCS_PTR_IS_PTR(request)) outbox_.ucx.request_free(request);
    endpoint_ = nullptr;
}

// ---- puts ----

void UcxEndpoint::push(UcxPut *put) noexcept {
    put->active = true;
    if (join_batch(put)) return;
    if (open_ != nullptr) enqueue(std::exchange(open_, nullptr));
    enqueue(put);
}

// Whether a put is dealt with: small, and with others of a batch or the first of one.
bool UcxEndpoint::join_batch(UcxPut *put) noexcept {
    const Put &part = put->put;
    const bool last = part.value != 0;
    if (part.bytes > max_part_bytes || part.bytes == 0 || (last && open_ == nullptr)) return false;
    if (open_ != nullptr &&
        (open_->put.memory != part.memory || open_->put.early != part.early ||
         open_->put.early_flag != part.early_flag ||
         open_->batch.size() + part.bytes > max_batch_bytes - sizeof(BatchPart)))
        enqueue(std::exchange(open_, nullptr));
    if (last && open_ == nullptr) return false;
    if (failed_) return false;
    UcxPut *batch = open_ != nullptr ? open_ : put;
    try {
        append_part(batch->batch, part.offset, part.from, part.bytes);
    } catch (...) {
        fail(UCS_ERR_NO_MEMORY, "cannot send");
        return false;
    }
    if (batch == put) {
        // Its source may be reused, and what it was pending for is the last part's.
        if (part.pending != nullptr) part.pending->fetch_sub(1, std::memory_order_release);
        put->put.pending = nullptr;
        put->source = nullptr;
        open_ = put;
        return true;
    }
    batch->put.signal = part.signal;
    batch->put.value = part.value;
    batch->put.called = part.called;
    if (last) batch->put.pending = std::exchange(put->put.pending, nullptr);
    outbox_.end(put);
    if (last) enqueue(std::exchange(open_, nullptr));
    return true;
}

void UcxEndpoint::enqueue(UcxPut *put) noexcept {
    if (failed_) {
        put->complete = true;
        return end_when_sent(put);
    }
    (first_ == nullptr ? first_ : last_->next) = put;
    last_ = put;
    if (first_ != put) return;
    stretch_bytes_ = 0;
    pump();
}

void UcxEndpoint::pump() noexcept {
    ready_ = false;
    for (int pieces = 0; first_ != nullptr && under_way_ < most_under_way; ++pieces) {
        UcxPut *put = first_;
        if (pieces == (stretch_bytes_ < long_stretch_bytes ? most_at_once : 1)) return get_ready();
        send_piece(*put);
        if (first_ != put) return;  // the endpoint failed and dropped its queue
        if (!put->complete) continue;
        first_ = put->next;
        end_when_sent(put);
    }
}

void UcxEndpoint::send_piece(UcxPut &put) noexcept {
    UcxPiece *piece = outbox_.pieces.take();
    if (piece == nullptr) return fail(UCS_ERR_NO_MEMORY, "cannot send");
    const std::uint64_t offset = put.sent;
    const std::uint64_t bytes = std::min(put.bytes() - offset, outbox_.piece_bytes);
    put.sent += bytes;
    stretch_bytes_ += bytes;
    put.complete = put.sent == put.bytes();
    ++put.under_way;

    piece->put = &put;
    piece->message = {};
    piece->message.kind = put.is_batch() ? MessageKind::batch
                          : put.complete ? MessageKind::put
                                         : MessageKind::piece;
    piece->message.memory = put.put.memory;
    piece->message.signal = put.put.signal;
    piece->message.offset = put.is_batch() ? 0 : put.put.offset + offset;
    piece->message.bytes = bytes;
    piece->message.value = put.put.value;
    piece->message.called = put.complete ? put.put.called : 0;
    piece->message.early = put.put.early;
    piece->message.early_flag = put.put.early_flag;
    send(piece, bytes == 0 ? nullptr : put.from() + offset, put.source);
}

// Ends a put of which nothing is left to be done. Not before the signal is sent, although the
// source could be reused earlier: a caller whose puts have all ended may turn to something else and
// make no progress here, and the peer would wait for a signal that nobody sends.
void UcxEndpoint::end_when_sent(UcxPut *put) noexcept {
    if (put->complete && put->under_way == 0) outbox_.end(put);
}

void UcxEndpoint::drop_queue() noexcept {
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

// ---- messages ----

void UcxEndpoint::tell(MessageKind kind) noexcept {
    if (failed_ || endpoint_ == nullptr) return;
    UcxPiece *piece = outbox_.pieces.take();
    if (piece == nullptr) return fail(UCS_ERR_NO_MEMORY, "cannot send");
    piece->put = nullptr;
    piece->message = {};
    piece->message.kind = kind;
    send(piece, nullptr, nullptr);
}

void UcxEndpoint::send(UcxPiece *piece, const std::byte *from, ucp_mem_h source) noexcept {
    piece->endpoint = this;
    Message &message = piece->message;
    message.from = static_cast<std::uint32_t>(outbox_.rank);
    message.token = token_;
    message.number = messages_++;

    ucp_request_param_t parameters{};
    parameters.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    parameters.cb.send = piece_sent;
    parameters.user_data = piece;
    parameters.memory_type = UCS_MEMORY_TYPE_HOST;
    if (message.kind == MessageKind::hello) {
        // Has UCX ask who the peer is, once all are connected: asked amid traffic, when a transport
        // stops, UCX 1.13 aborts the process (an assertion in ucp_request.c), and asked while
        // it connects, when the peer dies (one in wireup_ep.c).
        parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        parameters.flags = UCP_AM_SEND_FLAG_REPLY;
    }
    if (message.kind == MessageKind::batch) {
        parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        parameters.flags = UCP_AM_SEND_FLAG_EAGER;
    }
    if (source != nullptr) {
        // Spares RDMA a registration for each message.
        parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
        parameters.memh = source;
    }
    ++under_way_;
    void *request = outbox_.ucx.am_send_nbx(endpoint_, ucx_message_id, &message, sizeof message,
                                            from, message.bytes, &parameters);
    if (UCS_PTR_IS_PTR(request)) return;  // piece_sent() follows, or has run already
    --under_way_;
    if (piece->put != nullptr) --piece->put->under_way;
    outbox_.pieces.give_back(piece);
    if (request != nullptr) fail(UCS_PTR_STATUS(request), "cannot send");
}

void UcxEndpoint::piece_sent(void *request, ucs_status_t status, void *sent) {
    auto *piece = static_cast<UcxPiece *>(sent);
    UcxEndpoint &self = *piece->endpoint;
    self.outbox_.ucx.request_free(request);
    --self.under_way_;
    UcxPut *put = piece->put;
    self.outbox_.pieces.give_back(piece);
    if (put != nullptr) {
        --put->under_way;
        // The one at the head of the queue is ended by pump().
        if (put != self.first_) self.end_when_sent(put);
    }
    if (status != UCS_OK) return self.fail(status, "cannot send");
    if (self.first_ != nullptr) self.get_ready();
}

void UcxEndpoint::get_ready() noexcept {
    if (ready_) return;
    ready_ = true;
    outbox_.ready.push_back(this);
}

// ---- failures ----

void UcxEndpoint::endpoint_failed(void *self, ucp_ep_h, ucs_status_t status) {
    static_cast<UcxEndpoint *>(self)->fail(status, "lost the connection");
}

void UcxEndpoint::fail(ucs_status_t status, const char *doing) noexcept {
    if (failed_) return;
    failed_ = true;
    const bool announced = outbox_.inbox.heard(peer_, MessageKind::goodbye);
    const bool busy = first_ != nullptr || !idle() || outbox_.inbox.receiving(peer_);
    drop_queue();
    if (outbox_.stopping || (announced && !busy)) return;
    try {
        outbox_.failure.set(
            VESCOMM_ERROR_PEER_FAILED,
            "rank " + std::to_string(outbox_.rank) + " " + doing + " to rank " +
                std::to_string(peer_) + " over UCX: " + outbox_.ucx.status_string(status) +
                (announced ? "; that rank has left while puts from or to it were under way"
                           : "; that process ended or its network did, see its output"));
    } catch (...) {
        outbox_.failure.set(VESCOMM_ERROR_PEER_FAILED, {});
    }
}

}  // namespace vescomm
