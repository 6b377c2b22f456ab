// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_inbox.h"

#include <sys/random.h>

#include <cstring>

#include "base/error.h"

namespace vescomm {
namespace {

std::uint64_t random_token() {
    std::uint64_t token = 0;
    if (getrandom(&token, sizeof token, 0) != sizeof token)
        throw Error(VESCOMM_ERROR_SYSTEM, "the operating system has no random bytes for a token");
    return token;
}

}  // namespace

UcxInbox::UcxInbox(int rank, const std::vector<bool> &peers, Failure &failure,
                   UcxMemories &memories)
    : rank_(rank),
      token_(random_token()),
      failure_(failure),
      memories_(memories),
      senders_(peers.size()) {
    for (std::size_t peer = 0; peer < peers.size(); ++peer) senders_[peer].expected = peers[peer];
}

void UcxInbox::open(const UcxLibrary &ucx, ucp_worker_h worker) {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = ucx_message_id;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = message_arrived;
    handler.arg = this;
    ucx.check(ucx.worker_set_am_recv_handler(worker, &handler),
              "UCX does not accept the handler of messages");
}

bool UcxInbox::heard(int peer, MessageKind kind) const noexcept {
    const Sender &sender = senders_[peer];
    switch (kind) {
        case MessageKind::hello:
            return sender.said_hello;
        case MessageKind::welcome:
            return sender.welcomed;
        case MessageKind::goodbye:
            return sender.said_goodbye;
        case MessageKind::put:
            break;
    }
    return false;
}

bool UcxInbox::take_news() noexcept {
    const bool news = news_;
    news_ = false;
    return news;
}

ucs_status_t UcxInbox::message_arrived(void *inbox, const void *header, std::size_t header_bytes,
                                       void *payload, std::size_t payload_bytes,
                                       const ucp_am_recv_param_t *parameters) {
    auto *self = static_cast<UcxInbox *>(inbox);
    // A broken communicator must leave all memory alone.
    if (self->closed_ || self->failure_.broken()) return UCS_OK;
    Message message;
    const char *why = (parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0
                          ? "it asks for a rendezvous"
                          : parse_message(header, header_bytes, payload_bytes,
                                          static_cast<int>(self->senders_.size()), self->token_,
                                          message);
    if (why == nullptr) why = self->receive(message, payload);
    if (why != nullptr) self->refuse(message, why);
    return UCS_OK;  // UCX may have its buffer back
}

const char *UcxInbox::receive(const Message &message, const void *payload) noexcept {
    Sender &sender = senders_[message.from];
    if (!sender.expected) return "that rank should not send here";
    if (message.number != sender.messages) return "it is not the next one of its sender";
    ++sender.messages;
    switch (message.kind) {
        case MessageKind::hello:
            sender.said_hello = true;
            return nullptr;
        case MessageKind::welcome:
            sender.welcomed = true;
            return nullptr;
        case MessageKind::goodbye:
            sender.said_goodbye = true;
            return nullptr;
        case MessageKind::put:
            return take_in(sender, message, payload);
    }
    return "its kind is unknown";
}

const char *UcxInbox::take_in(Sender &sender, const Message &message,
                              const void *payload) noexcept {
    if (message.bytes > 0) {
        const UcxMemory *memory = memories_.find(message.memory);
        if (memory == nullptr || memory->base == nullptr) return "its memory is not offered";
        if (!within(message.offset, message.bytes, memory->bytes))
            return "its bytes do not fit into the memory";
        std::memcpy(memory->base + message.offset, payload, message.bytes);
    }
    if (!sender.signals.raise(message.signal, message.value))
        return "there is no memory left for its channel";
    news_ = true;
    return nullptr;
}

void UcxInbox::refuse(const Message &message, const char *why) noexcept {
    try {
        failure_.set(VESCOMM_ERROR_PEER_FAILED,
                     "rank " + std::to_string(rank_) +
                         " received a message over UCX that cannot be right: " + why +
                         " (it says it is number " + std::to_string(message.number) +
                         " of rank " + std::to_string(message.from) +
                         "); all ranks must run the same version of vescomm, and no other program "
                         "may use its ports");
    } catch (...) {
        failure_.set(VESCOMM_ERROR_PEER_FAILED, {});
    }
}

}  // namespace vescomm
