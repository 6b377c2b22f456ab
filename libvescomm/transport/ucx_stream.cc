// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Per operation: no allocation once the free list is warm, no lock, no system call but UCX's.
#include "transport/ucx_stream.h"

namespace vescomm {

// ---- what the streams share ----

UcxOperation *UcxStreams::take() noexcept {
    if (free == nullptr) {
        try {
            free = &all.emplace_back();
        } catch (...) {
            failure.set(VESCOMM_ERROR_OUT_OF_MEMORY,
                        "there is no memory for one more put under way over UCX, after " +
                            std::to_string(all.size()));
            return nullptr;
        }
    }
    UcxOperation *operation = free;
    free = operation->next;
    *operation = {};
    return operation;
}

void UcxStreams::give_back(UcxOperation *operation) noexcept {
    operation->next = free;
    free = operation;
}

void UcxStreams::pump_ready() noexcept {
    // A pump may get a stream ready again, at the end of the list or in a later call.
    for (std::size_t i = 0; i < ready.size(); ++i) {
        ready[i]->ready_ = false;
        ready[i]->pump();
    }
    ready.clear();
}

// ---- connection ----

void UcxStream::connect(const Address &address) {
    token_ = address.token;
    ucp_ep_params_t parameters{};
    parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    parameters.address = reinterpret_cast<const ucp_address_t *>(address.worker.data());
    parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;  // must be the same on both sides
    parameters.err_handler.cb = endpoint_failed;
    parameters.err_handler.arg = this;
    streams_.ucx.check(
        streams_.ucx.ep_create(worker_, &parameters, &endpoint_),
        "UCX cannot connect rank " + std::to_string(streams_.rank) + " to rank " +
            std::to_string(peer_) +
            "; check that UCX_TLS and UCX_NET_DEVICES name a network that both nodes share");
}

void UcxStream::tell(MessageKind kind) noexcept {
    UcxOperation *operation = streams_.take();
    if (operation == nullptr) return;
    operation->message.kind = kind;
    if (failed_) return streams_.give_back(operation);
    send(operation);
}

void UcxStream::endpoint_failed(void *stream, ucp_ep_h, ucs_status_t status) {
    auto *self = static_cast<UcxStream *>(stream);
    if (self->idle() && self->streams_.inbox.heard(self->peer_, MessageKind::goodbye)) {
        self->failed_ = true;  // as announced
        return;
    }
    self->fail(status, "lost the connection");
}

void UcxStream::close() noexcept {
    failed_ = true;
    give_up();
    if (endpoint_ == nullptr) return;
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
    // By force nothing is awaited, so there is no request to complete in UCX 1.13; in case another
    // version makes one, it ends with the worker.
    void *request = streams_.ucx.ep_close_nbx(endpoint_, &parameters);
    if (UCS_PTR_IS_PTR(request)) streams_.ucx.request_free(request);
    endpoint_ = nullptr;
}

// ---- queue ----

void UcxStream::push(UcxOperation *operation) noexcept {
    operation->stream = this;
    if (failed_) return end(operation);
    if (operation->target.key == nullptr && queue_.head == nullptr) return send(operation);
    if (queue_.tail != nullptr) queue_.tail->next = operation;
    if (queue_.head == nullptr) queue_.head = operation;
    if (queue_.not_started == nullptr) queue_.not_started = operation;
    queue_.tail = operation;
    pump();
}

UcxOperation *UcxStream::pop() noexcept {
    UcxOperation *operation = queue_.head;
    queue_.head = operation->next;
    if (queue_.head == nullptr) queue_.tail = nullptr;
    if (queue_.not_started == operation) queue_.not_started = operation->next;
    operation->next = nullptr;
    return operation;
}

void UcxStream::pump() noexcept {
    for (;;) {
        // Messages go out in order, up to the first large put that has not arrived.
        while (queue_.head != nullptr) {
            UcxOperation *operation = queue_.head;
            const bool large = operation->target.key != nullptr;
            if (large && (operation == queue_.not_started || operation->open_requests > 0)) break;
            pop();
            if (large) {
                --large_puts_;
                operation->message.bytes = 0;  // they are there; only the signal is left
            }
            send(operation);
        }

        // Large puts may start before their turn, since nobody looks before the signal; but not
        // ahead of a small put, which might write the same bytes.
        bool started = false;
        while (queue_.not_started != nullptr && large_puts_ < most_large_puts) {
            UcxOperation *operation = queue_.not_started;
            if (operation->target.key != nullptr) {
                queue_.not_started = operation->next;
                start_large(operation);
                started = true;
            } else if (operation->message.bytes == 0) {
                queue_.not_started = operation->next;
            } else {
                break;
            }
        }
        if (!started || queue_.head == nullptr || queue_.head->open_requests > 0) return;
    }
}

// ---- messages ----

void UcxStream::send(UcxOperation *operation) noexcept {
    operation->stream = this;
    if (failed_) return end(operation);
    Message &message = operation->message;
    message.from = static_cast<std::uint32_t>(streams_.rank);
    message.token = token_;
    message.number = messages_sent_++;

    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                              UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    parameters.cb.send = message_sent;
    parameters.user_data = operation;
    parameters.flags = UCP_AM_SEND_FLAG_EAGER;  // ordered, and no answer is needed
    parameters.memory_type = UCS_MEMORY_TYPE_HOST;
    void *request = streams_.ucx.am_send_nbx(endpoint_, ucx_message_id, &message, sizeof message,
                                             operation->from, message.bytes, &parameters);
    if (UCS_PTR_IS_PTR(request)) {
        ++operation->open_requests;
        ++requests_under_way_;
        ++messages_under_way_;
        operation->orphaned = true;
        return;
    }
    const ucs_status_t status = UCS_PTR_STATUS(request);
    end(operation);
    if (status != UCS_OK) fail(status, "cannot send");
}

void UcxStream::message_sent(void *request, ucs_status_t status, void *operation) {
    auto *sent = static_cast<UcxOperation *>(operation);
    UcxStream &self = *sent->stream;
    --self.messages_under_way_;
    self.streams_.ucx.request_free(request);
    self.request_done(sent, status);
}

// ---- large puts ----

void UcxStream::start_large(UcxOperation *operation) noexcept {
    ++large_puts_;
    ++operation->open_requests;  // until both requests are made
    ++requests_under_way_;

    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                              UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    parameters.cb.send = bytes_read;
    parameters.user_data = operation;
    parameters.memory_type = UCS_MEMORY_TYPE_HOST;
    if (operation->source != nullptr) {
        // Spares RDMA a registration per put; used since UCX 1.14, ignored before.
        parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
        parameters.memh = operation->source;
    }
    const UcxTarget &target = operation->target;
    void *put = streams_.ucx.put_nbx(endpoint_, operation->from, operation->message.bytes,
                                     target.address + operation->message.offset, target.key,
                                     &parameters);
    ucs_status_t status = UCS_OK;
    if (UCS_PTR_IS_PTR(put)) {
        ++operation->open_requests;
        ++requests_under_way_;
    } else {
        source_read(operation);
        status = UCS_PTR_STATUS(put);
    }

    if (status == UCS_OK) {
        parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
        parameters.cb.send = bytes_arrived;
        void *flush = streams_.ucx.ep_flush_nbx(endpoint_, &parameters);
        if (UCS_PTR_IS_PTR(flush)) {
            ++operation->open_requests;
            ++requests_under_way_;
        } else {
            status = UCS_PTR_STATUS(flush);
        }
    }
    request_done(operation, status);
}

void UcxStream::bytes_read(void *request, ucs_status_t status, void *operation) {
    auto *read = static_cast<UcxOperation *>(operation);
    UcxStream &self = *read->stream;
    self.streams_.ucx.request_free(request);
    self.source_read(read);
    self.request_done(read, status);
}

void UcxStream::bytes_arrived(void *request, ucs_status_t status, void *operation) {
    auto *arrived = static_cast<UcxOperation *>(operation);
    UcxStream &self = *arrived->stream;
    self.streams_.ucx.request_free(request);
    self.request_done(arrived, status);
}

// ---- ends ----

void UcxStream::request_done(UcxOperation *operation, ucs_status_t status) noexcept {
    --requests_under_way_;
    if (--operation->open_requests == 0) {
        if (operation->orphaned) {
            end(operation);
        } else {
            get_ready();
        }
    }
    if (status != UCS_OK) fail(status, "cannot send");
}

void UcxStream::source_read(UcxOperation *operation) noexcept {
    if (operation->pending != nullptr) operation->pending->fetch_sub(1, std::memory_order_release);
    operation->pending = nullptr;
}

void UcxStream::end(UcxOperation *operation) noexcept {
    source_read(operation);
    if (operation->uses != nullptr) --*operation->uses;
    streams_.give_back(operation);
}

void UcxStream::give_up() noexcept {
    while (queue_.head != nullptr) {
        UcxOperation *operation = pop();
        if (operation->open_requests > 0) {
            operation->orphaned = true;
        } else {
            end(operation);
        }
    }
    large_puts_ = 0;
}

void UcxStream::fail(ucs_status_t status, const char *doing) noexcept {
    if (!failed_ && !streams_.stopping) {
        try {
            streams_.failure.set(
                VESCOMM_ERROR_PEER_FAILED,
                "rank " + std::to_string(streams_.rank) + " " + doing + " to rank " +
                    std::to_string(peer_) + " over UCX: " + streams_.ucx.status_string(status) +
                    (streams_.inbox.heard(peer_, MessageKind::goodbye)
                         ? "; that rank has left while puts to it were under way"
                         : "; that process ended or its network did, look at its output"));
        } catch (...) {
            streams_.failure.set(VESCOMM_ERROR_PEER_FAILED, {});
        }
    }
    failed_ = true;
    give_up();
}

void UcxStream::get_ready() noexcept {
    if (ready_) return;
    ready_ = true;
    streams_.ready.push_back(this);
}

}  // namespace vescomm
