// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_inbox.h"

#include <cstring>
#include <utility>

#include "transport/ucx_context.h"

namespace vescomm::internal {

UcxInbox::UcxInbox(const UcxLibrary &ucx, const UcxWorker &worker, UcxContext &context,
                   std::size_t ranks)
    : flow(ranks), ucx_(ucx), worker_(worker), context_(context), senders_(ranks) {}

void UcxInbox::close() noexcept {
    if (std::exchange(closed_, true)) return;
    for (std::size_t peer = 0; peer < senders_.size(); ++peer) {
        give_up(static_cast<int>(peer));
        for (Arrival *arrival = senders_[peer].first; arrival != nullptr; arrival = arrival->next)
            if (arrival->state == Arrival::parked && arrival->rendezvous != nullptr)
                ucx_.am_data_release(worker_.handle(), arrival->rendezvous);
    }
}

void UcxInbox::give_up(int peer) noexcept {
    Sender &sender = senders_[peer];
    std::erase_if(sender.eager, [&](const Eager &eager) {
        if (eager.rendezvous == nullptr) return false;
        sender.eager_bytes -= cost_of(eager.message);
        ucx_.am_data_release(worker_.handle(), eager.rendezvous);
        return true;
    });
}

bool UcxInbox::receive(int peer, const UcxMessage &message, void *data, bool rendezvous) noexcept {
    // A failed communicator must not write memory.
    if (closed_ || context_.failure.broken()) return false;
    Sender &sender = senders_[peer];
    keep_data_ = false;
    const char *why = rendezvous && message.bytes == 0 ? "it comes by rendezvous and has no bytes"
                      : message.kind == MessageKind::acknowledgement
                          ? take_acknowledgement(peer, message)
                      : message.kind == MessageKind::request_to_send ? take_request(peer, message)
                      : has_credit(sender, message) ? take_in(sender, message, data, rendezvous)
                                                    : keep(sender, message, data, rendezvous);
    if (why != nullptr) context_.refuse(message, why);
    return keep_data_;
}

bool UcxInbox::has_credit(const Sender &sender, const UcxMessage &message) noexcept {
    if (message.credit == 0) return true;
    return sender.granted.read({message.signal.channel, message.credit_flag}) >= message.credit;
}

const char *UcxInbox::keep(Sender &sender, const UcxMessage &message, void *data,
                           bool rendezvous) noexcept {
    if (sender.eager_bytes + cost_of(message) > max_unexpected_bytes())
        return "it is too much to be kept until it is expected";
    try {
        Eager &eager = sender.eager.emplace_back();
        eager.message = message;
        if (rendezvous) {
            eager.rendezvous = data;
        } else if (message.bytes > 0) {
            const auto *bytes = static_cast<const std::byte *>(data);
            eager.bytes.assign(bytes, bytes + message.bytes);
        }
    } catch (...) {
        return "there is no memory left to keep it until it is expected";
    }
    keep_data_ = rendezvous;
    sender.eager_bytes += cost_of(message);
    return nullptr;
}

void UcxInbox::grant_credit(int peer, SignalName signal, std::uint64_t value) noexcept {
    Sender &sender = senders_[peer];
    const bool answered =
        !flow.requested(peer) || flow.grant(peer, signal, sender.granted.read(signal), value);
    if (!sender.granted.raise(signal, value) || !answered) return context_.run_out();
    for (auto eager = sender.eager.begin();
         eager != sender.eager.end() && !closed_ && !context_.failure.broken();) {
        if (!has_credit(sender, eager->message)) {
            ++eager;
            continue;
        }
        const bool rendezvous = eager->rendezvous != nullptr;
        void *data = rendezvous ? std::exchange(eager->rendezvous, nullptr) : eager->bytes.data();
        const char *why = take_in(sender, eager->message, data, rendezvous);
        if (why != nullptr) {
            if (rendezvous) ucx_.am_data_release(worker_.handle(), data);
            return context_.refuse(eager->message, why);
        }
        sender.eager_bytes -= cost_of(eager->message);
        eager = sender.eager.erase(eager);
    }
}

const char *UcxInbox::take_in(Sender &sender, const UcxMessage &message, void *data,
                              bool rendezvous) noexcept {
    PutMemory *memory = nullptr;
    if (message.bytes > 0) {
        if (const char *why = context_.memories.find_offered(message.memory, memory)) return why;
        if (message.kind == MessageKind::batch) {
            // The sender forbids rendezvous for batches, also if UCX would choose it.
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

    Arrival *arrival = free_list_.take();
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
                free_list_.give_back(arrival);
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

void UcxInbox::write(const PutMemory &memory, const UcxMessage &message,
                     const void *data) noexcept {
    if (message.kind == MessageKind::batch)
        scatter_batch(static_cast<const std::byte *>(data), message.bytes, memory.base);
    else if (message.bytes > 0) std::memcpy(memory.base + message.offset, data, message.bytes);
}

// True if an earlier put of the sender still has to write some of the same bytes.
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
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference)
    parameters.memh = registration_of(*arrival.memory);
    ++arrival.sender->under_way;
    void *request = ucx_.am_recv_data_nbx(worker_.handle(), rendezvous,
                                          arrival.memory->base + arrival.message.offset,
                                          arrival.message.bytes, &parameters);
    if (UCS_PTR_IS_PTR(request)) return;
    --arrival.sender->under_way;
    arrival.state = Arrival::complete;
    if (request != nullptr) lose(arrival.message, UCS_PTR_STATUS(request));
}

void UcxInbox::bytes_arrived(void *request, ucs_status_t status, std::size_t, void *arrival) {
    auto *arrived = static_cast<Arrival *>(arrival);
    UcxInbox &self = *arrived->inbox;
    self.ucx_.request_free(request);
    arrived->state = Arrival::complete;
    --arrived->sender->under_way;
    if (self.closed_) return;
    if (status != UCS_OK) self.lose(arrived->message, status);
    self.advance(*arrived->sender);
}

void UcxInbox::advance(Sender &sender) noexcept {
    // UCX may call bytes_arrived() from within start().
    if (sender.advancing) return;
    sender.advancing = true;
    while (sender.first != nullptr && !context_.failure.broken()) {
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
        free_list_.give_back(&arrival);
    }
    sender.advancing = false;
}

// Called for each message that has taken effect.
void UcxInbox::raise(Sender &sender, const UcxMessage &message) noexcept {
    if (message.credit != 0)
        if (const char *why = consume(static_cast<int>(&sender - senders_.data()), message))
            context_.refuse(message, why);
    if (message.kind == MessageKind::piece) return;
    bool raised = sender.signals.raise(message.signal, message.value);
    if (message.signature != 0 && message.tag != 0)
        raised &= sender.signals.raise({message.signal.channel, tag_flag},
                                       signature_value(message.value, message.tag));
    if (message.signature != 0)
        raised &= sender.signals.raise({message.signal.channel, signature_flag_for(message.bytes)},
                                       signature_value(message.value, message.signature));
    if (!raised) context_.refuse(message, "there is no memory left for its channel");
    context_.note();
}

// ---- flow control ----

const char *UcxInbox::consume(int peer, const UcxMessage &message) noexcept {
    if (!flow.consume(peer, eager_charge_of(message)))
        return "there is no memory left to acknowledge it";
    if (flow.has_answers()) context_.note();
    return nullptr;
}

const char *UcxInbox::take_request(int peer, const UcxMessage &message) noexcept {
    if (!flow.take_request(peer, message.signal, message.value,
                           senders_[peer].granted.read(message.signal)))
        return "there is no memory left to answer it";
    if (flow.has_answers()) context_.note();
    return nullptr;
}

const char *UcxInbox::take_acknowledgement(int peer, const UcxMessage &message) noexcept {
    context_.note();
    return flow.acknowledge(peer, message.value);
}

void UcxInbox::lose(const UcxMessage &message, ucs_status_t status) noexcept {
    context_.lose(message, ucx_.status_string(status));
}

}  // namespace vescomm::internal
