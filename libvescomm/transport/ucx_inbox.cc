// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_inbox.h"

#include <sys/random.h>

#include <cstring>
#include <utility>

#include "base/error.h"

namespace vescomm {
namespace {

std::uint64_t random_token() {
    std::uint64_t token = 0;
    if (getrandom(&token, sizeof token, 0) != sizeof token)
        throw Error(VESCOMM_ERROR_SYSTEM, "the operating system has no random bytes for a token");
    return token;
}

// A sentence that there is no memory for is left out.
template <typename Sentence>
void tell(Failure &failure, Sentence sentence) noexcept {
    if (failure.broken()) return;
    try {
        failure.set(VESCOMM_ERROR_PEER_FAILED, sentence());
    } catch (...) {
        failure.set(VESCOMM_ERROR_PEER_FAILED, {});
    }
}

}  // namespace

UcxInbox::UcxInbox(const UcxLibrary &ucx, ucp_worker_h worker, int rank,
                   const std::vector<bool> &peers, Failure &failure, UcxMemories &memories)
    : ucx_(ucx),
      worker_(worker),
      rank_(rank),
      token_(random_token()),
      failure_(failure),
      memories_(memories),
      senders_(peers.size()) {
    for (std::size_t peer = 0; peer < peers.size(); ++peer) senders_[peer].expected = peers[peer];
}

void UcxInbox::open() {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = ucx_message_id;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = message_arrived;
    handler.arg = this;
    ucx_.check(ucx_.worker_set_am_recv_handler(worker_, &handler),
               "UCX does not accept the handler of messages");
}

void UcxInbox::close() noexcept {
    closed_ = true;
    for (Sender &sender : senders_)
        for (const Early &early : sender.early)
            if (early.rendezvous != nullptr) ucx_.am_data_release(worker_, early.rendezvous);
    for (Sender &sender : senders_)
        for (Arrival *arrival = sender.first; arrival != nullptr; arrival = arrival->next)
            if (arrival->state == Arrival::parked && arrival->rendezvous != nullptr)
                ucx_.am_data_release(worker_, arrival->rendezvous);
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
        case MessageKind::piece:
        case MessageKind::put:
        case MessageKind::batch:
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
                                       void *data, std::size_t data_bytes,
                                       const ucp_am_recv_param_t *parameters) {
    auto *self = static_cast<UcxInbox *>(inbox);
    // A broken communicator must leave all memory alone.
    if (self->closed_ || self->failure_.broken()) return UCS_OK;
    const bool rendezvous = (parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    Message message;
    const char *why = parse_message(header, header_bytes, data_bytes,
                                    static_cast<int>(self->senders_.size()), self->token_, message);
    self->keep_data_ = false;
    if (why == nullptr) why = self->receive(message, data, rendezvous);
    if (why != nullptr) self->refuse(message, why);
    return self->keep_data_ ? UCS_INPROGRESS : UCS_OK;
}

const char *UcxInbox::receive(const Message &message, void *data, bool rendezvous) noexcept {
    Sender &sender = senders_[message.from];
    if (!sender.expected) return "that rank should not send here";
    if (message.number != sender.messages) return "it is not the next one of its sender";
    ++sender.messages;
    if (rendezvous && message.bytes == 0) return "it comes by rendezvous and has no bytes";
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
        case MessageKind::piece:
        case MessageKind::put:
        case MessageKind::batch:
            if (!is_expected(sender, message)) return keep(sender, message, data, rendezvous);
            return take_in(sender, message, data, rendezvous);
    }
    return "its kind is unknown";
}

bool UcxInbox::is_expected(const Sender &sender, const Message &message) noexcept {
    if (message.early == 0) return true;
    return sender.expects.read({message.signal.channel, message.early_flag}) >= message.early;
}

const char *UcxInbox::keep(Sender &sender, const Message &message, void *data,
                           bool rendezvous) noexcept {
    // Schedules put only little early, and no rank is more than an operation ahead.
    constexpr std::uint64_t most_bytes = 256 << 20;
    if (message.bytes > most_bytes - sender.early_bytes)
        return "it is too much to be kept until it is expected";
    try {
        Early &early = sender.early.emplace_back();
        early.message = message;
        if (rendezvous) {
            early.rendezvous = data;
        } else if (message.bytes > 0) {
            const auto *bytes = static_cast<const std::byte *>(data);
            early.bytes.assign(bytes, bytes + message.bytes);
        }
    } catch (...) {
        return "there is no memory left to keep it until it is expected";
    }
    keep_data_ = rendezvous;
    sender.early_bytes += message.bytes;
    return nullptr;
}

void UcxInbox::expect(int peer, SignalName signal, std::uint64_t value) noexcept {
    Sender &sender = senders_[peer];
    if (!sender.expects.raise(signal, value))
        tell(failure_, [] { return "there is no memory left to expect a message over UCX"; });
    for (auto early = sender.early.begin();
         early != sender.early.end() && !closed_ && !failure_.broken();) {
        if (!is_expected(sender, early->message)) {
            ++early;
            continue;
        }
        const bool rendezvous = early->rendezvous != nullptr;
        void *data = rendezvous ? std::exchange(early->rendezvous, nullptr) : early->bytes.data();
        const char *why = take_in(sender, early->message, data, rendezvous);
        if (why != nullptr) {
            if (rendezvous) ucx_.am_data_release(worker_, data);
            return refuse(early->message, why);
        }
        sender.early_bytes -= early->message.bytes;
        early = sender.early.erase(early);
    }
}

const char *UcxInbox::take_in(Sender &sender, const Message &message, void *data,
                              bool rendezvous) noexcept {
    UcxMemory *memory = nullptr;
    if (message.bytes > 0) {
        memory = memories_.find(message.memory);
        if (memory == nullptr || !memory->offered) return "its memory is not offered";
        if (message.kind == MessageKind::batch) {
            // Also where UCX may send by rendezvous, our batches are told not to.
            if (rendezvous) return "it is a batch, and comes by rendezvous";
            const char *why =
                check_batch(static_cast<const std::byte *>(data), message.bytes, memory->bytes);
            if (why != nullptr) return why;
        } else if (!within(message.offset, message.bytes, memory->bytes)) {
            return "its bytes do not fit into the memory";
        }
    }

    // The usual case: nothing of this sender is under way.
    if (sender.first == nullptr && !rendezvous) {
        if (memory != nullptr) write(*memory, message, data);
        raise(sender, message);
        return nullptr;
    }

    Arrival *arrival = pool_.take();
    if (arrival == nullptr) return "there is no memory left to remember it";
    arrival->inbox = this;
    arrival->sender = &sender;
    arrival->memory = memory;
    arrival->message = message;
    const bool batch = memory != nullptr && message.kind == MessageKind::batch;
    arrival->begin = batch ? 0 : message.offset;
    arrival->end = batch ? memory->bytes : message.offset + message.bytes;
    arrival->state = Arrival::complete;
    arrival->rendezvous = nullptr;
    if (memory != nullptr && collides(*arrival)) {
        arrival->state = Arrival::parked;
        if (rendezvous) {
            arrival->rendezvous = data;
            keep_data_ = true;
        } else {
            try {
                const auto *bytes = static_cast<const std::byte *>(data);
                arrival->bytes.assign(bytes, bytes + message.bytes);
            } catch (...) {
                pool_.give_back(arrival);
                return "there is no memory left to park it";
            }
        }
    }

    if (memory != nullptr) ++memory->uses;
    (sender.first == nullptr ? sender.first : sender.last->next) = arrival;
    sender.last = arrival;
    if (arrival->state != Arrival::parked) {
        if (rendezvous) {
            start(*arrival, data);
        } else if (memory != nullptr) {
            write(*memory, message, data);
        }
    }
    advance(sender);
    return nullptr;
}

void UcxInbox::write(const UcxMemory &memory, const Message &message, const void *data) noexcept {
    if (message.kind == MessageKind::batch)
        scatter_batch(static_cast<const std::byte *>(data), message.bytes, memory.base);
    else std::memcpy(memory.base + message.offset, data, message.bytes);
}

// Whether an earlier put of the same sender still has to write some of the same bytes.
bool UcxInbox::collides(const Arrival &arrival) const noexcept {
    for (const Arrival *other = arrival.sender->first; other != nullptr; other = other->next)
        if (other->memory == arrival.memory && other->state != Arrival::complete &&
            arrival.begin < other->end && other->begin < arrival.end)
            return true;
    return false;
}

void UcxInbox::start(Arrival &arrival, void *rendezvous) noexcept {
    arrival.state = Arrival::under_way;
    ucp_request_param_t parameters{};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                              UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_MEMH;
    parameters.cb.recv_am = bytes_arrived;
    parameters.user_data = &arrival;
    parameters.memory_type = UCS_MEMORY_TYPE_HOST;
    parameters.memh = arrival.memory->handle;  // NOLINT(clang-analyzer-core.NullDereference)
    void *request =
        ucx_.am_recv_data_nbx(worker_, rendezvous, arrival.memory->base + arrival.message.offset,
                              arrival.message.bytes, &parameters);
    if (UCS_PTR_IS_PTR(request)) return;
    arrival.state = Arrival::complete;
    if (request != nullptr) lose(arrival.message, UCS_PTR_STATUS(request));
}

void UcxInbox::bytes_arrived(void *request, ucs_status_t status, std::size_t, void *arrival) {
    auto *arrived = static_cast<Arrival *>(arrival);
    UcxInbox &self = *arrived->inbox;
    self.ucx_.request_free(request);
    arrived->state = Arrival::complete;
    if (self.closed_) return;
    if (status != UCS_OK) self.lose(arrived->message, status);
    self.advance(*arrived->sender);
}

void UcxInbox::advance(Sender &sender) noexcept {
    // UCX may call bytes_arrived() from within start().
    if (sender.advancing) return;
    sender.advancing = true;
    while (sender.first != nullptr && !failure_.broken()) {
        Arrival &arrival = *sender.first;
        if (arrival.state == Arrival::parked) {
            if (arrival.rendezvous != nullptr) {
                start(arrival, std::exchange(arrival.rendezvous, nullptr));
            } else {
                write(*arrival.memory, arrival.message, arrival.bytes.data());
                arrival.state = Arrival::complete;
            }
        }
        if (arrival.state != Arrival::complete) break;
        raise(sender, arrival.message);
        if (arrival.memory != nullptr) --arrival.memory->uses;
        sender.first = arrival.next;
        pool_.give_back(&arrival);
    }
    sender.advancing = false;
}

void UcxInbox::raise(Sender &sender, const Message &message) noexcept {
    if (message.kind == MessageKind::piece) return;
    bool raised = sender.signals.raise(message.signal, message.value);
    if (message.called != 0)
        raised &= sender.signals.raise({message.signal.channel, called_flag_of(message.bytes)},
                                       called_value(message.value, message.called));
    if (!raised) refuse(message, "there is no memory left for its channel");
    news_ = true;
}

void UcxInbox::refuse(const Message &message, const char *why) noexcept {
    tell(failure_, [&] {
        return "rank " + std::to_string(rank_) +
               " received a message over UCX that cannot be right: " + why +
               " (it says it is number " + std::to_string(message.number) + " of rank " +
               std::to_string(message.from) +
               "); all ranks must run the same version of vescomm, and no other program may use "
               "its ports";
    });
}

void UcxInbox::lose(const Message &message, ucs_status_t status) noexcept {
    tell(failure_, [&] {
        return "rank " + std::to_string(rank_) + " did not receive all of the " +
               std::to_string(message.bytes) + " bytes that rank " + std::to_string(message.from) +
               " put into memory " + std::to_string(message.memory) +
               " over UCX: " + ucx_.status_string(status) +
               "; that process ended or its network did, see its output";
    });
}

}  // namespace vescomm
