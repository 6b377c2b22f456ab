// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_receiver.h"

#include <sys/random.h>

#include "base/error.h"
#include "transport/ucx_context.h"
#include "transport/ucx_endpoint.h"

namespace vescomm::internal {
namespace {

std::uint64_t random_token() {
    std::uint64_t token = 0;
    if (getrandom(&token, sizeof token, 0) != sizeof token)
        throw Error(VESCOMM_ERROR_SYSTEM, "the operating system has no random bytes for a token");
    return token;
}

constexpr std::uint32_t no_process = ~0u;

}  // namespace

UcxReceiver::UcxReceiver(UcxShared &shared) : shared_(shared), token_(random_token()) {}

void UcxReceiver::open() {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = ucx_message_id;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = message_arrived;
    handler.arg = this;
    shared_.ucx.check(shared_.ucx.worker_set_am_recv_handler(shared_.worker.handle(), &handler),
                      "UCX does not accept the handler of messages");
}

ucs_status_t UcxReceiver::message_arrived(void *receiver, const void *header,
                                          std::size_t header_bytes, void *data,
                                          std::size_t data_bytes,
                                          const ucp_am_recv_param_t *parameters) {
    auto &self = *static_cast<UcxReceiver *>(receiver);
    if (self.closed_) return UCS_OK;
    UcxMessage message;
    message.from = no_process;
    const char *why =
        parse_message(header, header_bytes, data_bytes,
                      static_cast<int>(self.shared_.endpoints.size()), self.token_, message);
    UcxEndpoint *sender = message.from == no_process
                              ? nullptr
                              : self.shared_.endpoint(static_cast<int>(message.from));
    if (sender != nullptr && sender->failed()) return UCS_OK;
    if (why == nullptr && sender == nullptr) why = "that process should not send here";
    if (why == nullptr && !sender->take_number(message.number))
        why = "it is not the next one of its sender";
    if (why != nullptr) {
        self.refuse(sender, message, why);
        return UCS_OK;
    }
    const bool rendezvous = (parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    return self.take(*sender, message, data, rendezvous) ? UCS_INPROGRESS : UCS_OK;
}

// True: UCX is to keep the descriptor of the rendezvous.
bool UcxReceiver::take(UcxEndpoint &sender, const UcxMessage &message, void *data,
                       bool rendezvous) noexcept {
    if (message.kind == MessageKind::hello) sender.said_hello = true;
    if (message.kind == MessageKind::welcome) sender.welcomed = true;
    if (message.kind == MessageKind::hello || message.kind == MessageKind::welcome ||
        message.kind == MessageKind::filler)
        return false;
    UcxContext *context = shared_.find(message.context);
    const int peer = context == nullptr ? -1 : context->rank_of(sender.process());
    if (message.kind == MessageKind::goodbye) {
        if (peer >= 0) context->take_goodbye(peer);
        else sender.gave_up = true;  // checked during wire-up only
        return false;
    }
    return peer >= 0 && context->inbox.receive(peer, message, data, rendezvous);
}

void UcxReceiver::refuse(UcxEndpoint *sender, const UcxMessage &message, const char *why) noexcept {
    for (const auto &[id, context] : shared_.contexts)
        if (sender == nullptr || context->rank_of(sender->process()) >= 0)
            context->refuse(message, why);
    // The sequence of its messages is lost.
    if (sender != nullptr) sender->fail("gave up the connection", why);
}

}  // namespace vescomm::internal
