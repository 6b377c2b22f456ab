// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Per operation: no allocation once the pools are warm, no lock, no system call except UCX's.
#include "transport/ucx_endpoint.h"

#include "transport/ucx_context.h"
#include "transport/ucx_queue.h"

namespace vescomm::internal {

// ---- connection ----

void UcxEndpoint::connect(const UcxAddress &address) {
    token_ = address.token;
    ucp_ep_params_t parameters{};
    parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    parameters.address = reinterpret_cast<const ucp_address_t *>(address.worker.data());
    parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;  // must be the same on both sides
    parameters.err_handler.cb = endpoint_failed;
    parameters.err_handler.arg = this;
    shared_.ucx.check(
        shared_.ucx.ep_create(shared_.worker.handle(), &parameters, &endpoint_),
        "UCX cannot connect rank " + std::to_string(shared_.process) + " to rank " +
            std::to_string(process_) +
            "; check that UCX_TLS and UCX_NET_DEVICES name a network that both nodes share");

    ucp_request_param_t flush{};
    flush.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
    flush.cb.send = connected;
    flush.user_data = this;
    void *request = shared_.ucx.ep_flush_nbx(endpoint_, &flush);
    if (UCS_PTR_IS_PTR(request)) ++under_way_;
    if (UCS_PTR_IS_ERR(request)) fail("cannot connect", UCS_PTR_STATUS(request));
}

void UcxEndpoint::connected(void *request, ucs_status_t status, void *self) {
    auto &endpoint = *static_cast<UcxEndpoint *>(self);
    endpoint.shared_.ucx.request_free(request);
    --endpoint.under_way_;
    if (status != UCS_OK) endpoint.fail("cannot connect", status);
}

void UcxEndpoint::close() noexcept {
    failed_ = true;
    if (endpoint_ == nullptr) return;
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void *request = shared_.ucx.ep_close_nbx(endpoint_, &parameters);
    if (UCS_PTR_IS_PTR(request)) shared_.ucx.request_free(request);
    endpoint_ = nullptr;
}

// ---- messages ----

void UcxEndpoint::send_control(MessageKind kind, std::uint32_t context) noexcept {
    if (failed_ || endpoint_ == nullptr) return;
    UcxPiece *piece = shared_.pieces.take();
    if (piece == nullptr) return fail("cannot send", UCS_ERR_NO_MEMORY);
    piece->queue = nullptr;
    piece->put = nullptr;
    piece->message = {};
    piece->message.kind = kind;
    piece->message.context = context;
    send(piece, nullptr, nullptr);
}

void UcxEndpoint::send(UcxPiece *piece, const std::byte *from, ucp_mem_h source) noexcept {
    piece->endpoint = this;
    UcxMessage &message = piece->message;
    message.from = static_cast<std::uint32_t>(shared_.process);
    message.token = token_;
    message.number = messages_++;

    ucp_request_param_t parameters{};
    parameters.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    parameters.cb.send = piece_sent;
    parameters.user_data = piece;
    parameters.memory_type = UCS_MEMORY_TYPE_HOST;
    if (message.kind == MessageKind::hello) {
        // Makes UCX resolve the remote endpoint once all processes are connected. Resolving it
        // later, amid traffic, makes UCX 1.13 abort when a transport stops (an assertion in
        // ucp_request.c); resolving it earlier, while connecting, makes UCX 1.13 abort when the
        // peer dies (one in wireup_ep.c).
        parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        parameters.flags = UCP_AM_SEND_FLAG_REPLY;
    }
    // A put with credit stays with its receiver until that expects it. By rendezvous it would hold
    // one of the few places of its queue meanwhile, and later puts could not pass it.
    if (message.kind == MessageKind::batch || message.credit != 0) {
        parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        parameters.flags = UCP_AM_SEND_FLAG_EAGER;
    }
    if (source != nullptr) {
        // Spares RDMA a registration per message.
        parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
        parameters.memh = source;
    }
    begin(*piece);
    void *request = shared_.ucx.am_send_nbx(endpoint_, ucx_message_id, &message, sizeof message,
                                            from, message.bytes, &parameters);
    if (UCS_PTR_IS_PTR(request)) return;  // piece_sent() will be called, or has been called already
    end(piece);
    if (request != nullptr) fail("cannot send", UCS_PTR_STATUS(request));
}

void UcxEndpoint::begin(UcxPiece &piece) noexcept {
    if (piece.queue != nullptr) piece.queue->piece_begins(*piece.put);
    else ++under_way_;
}

void UcxEndpoint::end(UcxPiece *piece) noexcept {
    UcxQueue *queue = piece->queue;
    UcxPut *put = piece->put;
    shared_.pieces.give_back(piece);
    if (queue != nullptr) queue->piece_ends(put);
    else --under_way_;
}

void UcxEndpoint::piece_sent(void *request, ucs_status_t status, void *sent) {
    auto *piece = static_cast<UcxPiece *>(sent);
    UcxEndpoint &self = *piece->endpoint;
    UcxQueue *queue = piece->queue;
    self.shared_.ucx.request_free(request);
    self.end(piece);
    if (status != UCS_OK) return self.fail("cannot send", status);
    if (queue != nullptr) queue->get_ready();
}

// ---- failures ----

void UcxEndpoint::endpoint_failed(void *self, ucp_ep_h, ucs_status_t status) {
    static_cast<UcxEndpoint *>(self)->fail("lost the connection", status);
}

void UcxEndpoint::fail(const char *doing, ucs_status_t status) noexcept {
    fail(doing, shared_.ucx.status_string(status));
}

void UcxEndpoint::fail(const char *doing, const char *reason) noexcept {
    if (failed_) return;
    failed_ = true;
    doing_ = doing;
    reason_ = reason;
    for (const auto &[id, context] : shared_.contexts) context->lose(*this);
}

std::string UcxEndpoint::why(int rank, int peer) const {
    return "rank " + std::to_string(rank) + " " + doing_ + " to rank " + std::to_string(peer) +
           " over UCX: " + reason_;
}

}  // namespace vescomm::internal
