// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Per operation: no allocation once the pool is warm, no lock, no system call but UCX's.
#include "transport/ucx_endpoint.h"

namespace vescomm {
namespace {

// Up to this size the bytes travel with their header; above, UCX asks the receiver where they go
// (rendezvous), and moves them there without a copy.
constexpr std::uint64_t most_eager_bytes = 8192;

}  // namespace

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
}

void UcxEndpoint::tell(MessageKind kind) noexcept {
    if (failed_ || endpoint_ == nullptr) return;
    UcxSending *sending = outbox_.pool.take();
    if (sending == nullptr) return fail(UCS_ERR_NO_MEMORY, "cannot send");
    sending->message = {};
    sending->message.kind = kind;
    sending->pending = nullptr;
    sending->uses = nullptr;
    send(sending, nullptr, nullptr);
}

void UcxEndpoint::send(UcxSending *sending, const std::byte *from, ucp_mem_h source) noexcept {
    if (failed_) return end(sending);
    sending->endpoint = this;
    Message &message = sending->message;
    message.from = static_cast<std::uint32_t>(outbox_.rank);
    message.token = token_;
    message.number = messages_++;

    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                              UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    parameters.cb.send = message_sent;
    parameters.user_data = sending;
    parameters.flags =
        message.bytes <= most_eager_bytes ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV;
    parameters.memory_type = UCS_MEMORY_TYPE_HOST;
    if (source != nullptr) {
        parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
        parameters.memh = source;
    }
    void *request = outbox_.ucx.am_send_nbx(endpoint_, ucx_message_id, &message, sizeof message,
                                            from, message.bytes, &parameters);
    if (UCS_PTR_IS_PTR(request)) {
        ++under_way_;
        return;
    }
    end(sending);
    if (request != nullptr) fail(UCS_PTR_STATUS(request), "cannot send");
}

void UcxEndpoint::message_sent(void *request, ucs_status_t status, void *sending) {
    auto *sent = static_cast<UcxSending *>(sending);
    UcxEndpoint &self = *sent->endpoint;
    self.outbox_.ucx.request_free(request);
    --self.under_way_;
    self.end(sent);
    if (status != UCS_OK) self.fail(status, "cannot send");
}

void UcxEndpoint::end(UcxSending *sending) noexcept {
    if (sending->pending != nullptr) sending->pending->fetch_sub(1, std::memory_order_release);
    if (sending->uses != nullptr) --*sending->uses;
    outbox_.pool.give_back(sending);
}

void UcxEndpoint::endpoint_failed(void *self, ucp_ep_h, ucs_status_t status) {
    static_cast<UcxEndpoint *>(self)->fail(status, "lost the connection");
}

void UcxEndpoint::fail(ucs_status_t status, const char *doing) noexcept {
    if (failed_) return;
    failed_ = true;
    const bool announced = outbox_.inbox.heard(peer_, MessageKind::goodbye);
    const bool busy = !idle() || outbox_.inbox.receiving(peer_);
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

void UcxEndpoint::close() noexcept {
    failed_ = true;
    if (endpoint_ == nullptr) return;
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
    void *request = outbox_.ucx.ep_close_nbx(endpoint_, &parameters);
    if (UCS_PTR_IS_PTR(request)) outbox_.ucx.request_free(request);
    endpoint_ = nullptr;
}

}  // namespace vescomm
