// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/match/message_match.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "execute/match/signature.h"
#include "schedule/send_receive.h"

namespace vescomm::internal {

namespace {

// The run of a message on the flags of its eager buffer (EagerBuffers::next()).
std::uint64_t run_of(std::uint64_t number) {
    return number / EagerPlaces::slots + 1;
}

std::uint32_t slot_of(std::uint64_t number) {
    return static_cast<std::uint32_t>(number % EagerPlaces::slots);
}

std::uint64_t word_of(std::uint64_t number, std::uint64_t value) {
    return run_of(number) << 32 | value;
}

}  // namespace

MessageMatch::MessageMatch(EagerPlaces places, std::uint64_t copied_limit)
    : places_(std::move(places)),
      channel_(places_.channel_for(places_.rank)),
      sources_(static_cast<std::size_t>(places_.nodes.ranks())),
      copies_(copied_limit) {
    for (int rank = 0; rank < places_.nodes.ranks(); ++rank) {
        of(rank).rank = rank;
        of(rank).local = places_.nodes.together(places_.rank, rank);
        of(rank).transport = places_.transports[static_cast<std::size_t>(rank)];
    }
}

template <typename Visit>
void MessageMatch::round_robin(Visit visit) noexcept {
    const std::size_t first = next_source_, all = sources_.size();
    for (std::size_t i = 0; i < all; ++i)
        if (visit(sources_[first + i < all ? first + i : first + i - all])) return;
}

void MessageMatch::post(PostedReceive &receive) noexcept {
    receive.order = ++posts_;
    receive.found = false;
    receive.copy = nullptr;
    // Otherwise the unexpected messages of one source, which other receives have made this rank
    // observe, would hide those of the others.
    if (receive.source == VESCOMM_ANY_SOURCE)
        for (Source &source : sources_) observe_headers(source, receive);
    if (ArrivedMessage *message = find_unexpected(receive)) return take(receive, *message);
    posted_for(receive.source).add(receive);
}

bool MessageMatch::find(PostedReceive &receive) noexcept {
    if (receive.found) return true;
    if (receive.source != VESCOMM_ANY_SOURCE) {
        observe(of(receive.source), receive);
    } else {
        round_robin([&](Source &source) {
            observe(source, receive);
            return receive.found;
        });
    }
    return receive.found;
}

void MessageMatch::release(PostedReceive &receive) noexcept {
    give_back(*std::exchange(receive.copy, nullptr));
}

// `waiting`: a receive of messages of the source, or of any source. Returns when it has found its
// message, or when no other one has arrived: after four at most, which is all that a source has
// under way.
void MessageMatch::observe_headers(Source &source, const PostedReceive &waiting) noexcept {
    MessageHeader header;
    while (!waiting.found && read_header(source, header)) {
        source.in_slot[slot_of(source.observed)] = nullptr;  // a message before it has left
        if (!give_to_receive(header) && !keep(header)) {
            source.space = MessageCopies::Space::no_memory;
            return;
        }
        ++source.observed;
    }
}

// observe_headers(), then makes way for the next message: nothing else would wake this rank.
void MessageMatch::observe(Source &source, const PostedReceive &waiting) noexcept {
    source.space = MessageCopies::Space::yes;
    observe_headers(source, waiting);
    ArrivedMessage *in_the_way = source.in_slot[slot_of(source.observed)];
    if (!waiting.found && in_the_way != nullptr) copy_chunks(*in_the_way);
}

// Reads the header of the next message. Returns false if it has not arrived.
bool MessageMatch::read_header(const Source &source, MessageHeader &header) const noexcept {
    const Transport &transport = *source.transport;
    const std::uint32_t channel = channel_ + slot_of(source.observed);
    const std::uint64_t run = run_of(source.observed);
    std::uint64_t word = transport.signalled(source.rank, {channel, signature_flag});
    // The signature of an empty message from another node.
    if (word >> 32 != run && !source.local)
        word = transport.signalled(source.rank, {channel, advertised_flag});
    if (word >> 32 != run) return false;
    const std::uint64_t tag = transport.signalled(source.rank, {channel, tag_flag});
    header = {.source = source.rank,
              .tag = tag >> 32 == run ? static_cast<std::int32_t>(tag) : 0,
              .signature = static_cast<std::uint32_t>(word),
              .number = source.observed};
    return true;
}

bool MessageMatch::give_to_receive(const MessageHeader &header) noexcept {
    PostedReceive *receive =
        older(of(header.source).posted.find(header.tag), posted_for_any_.find(header.tag));
    if (receive == nullptr) return false;
    posted_for(receive->source).remove(*receive);
    receive->found = true;
    receive->header = header;
    if (receive->source == VESCOMM_ANY_SOURCE) served(header.source);
    return true;
}

// False if there is no memory. The message is then observed again later.
bool MessageMatch::keep(const MessageHeader &header) noexcept {
    ArrivedMessage *message = free_list_.take();
    if (message == nullptr) return false;
    message->header = header;
    Source &its = of(header.source);
    its.unexpected.add(*message);
    its.in_slot[slot_of(header.number)] = message;
    return true;
}

ArrivedMessage *MessageMatch::find_unexpected(const PostedReceive &receive) noexcept {
    const std::int32_t tag = receive.expected_tag;
    if (receive.source != VESCOMM_ANY_SOURCE) return of(receive.source).unexpected.find(tag);
    ArrivedMessage *message = nullptr;
    round_robin([&](const Source &source) {
        message = source.unexpected.find(tag);
        return message != nullptr;
    });
    return message;
}

void MessageMatch::take(PostedReceive &receive, ArrivedMessage &message) noexcept {
    Source &its = of(message.header.source);
    its.unexpected.remove(message);
    ArrivedMessage *&in_slot = its.in_slot[slot_of(message.header.number)];
    if (in_slot == &message) in_slot = nullptr;
    receive.found = true;
    receive.header = message.header;
    if (receive.source == VESCOMM_ANY_SOURCE) served(its.rank);
    if (message.chunks > 0) receive.copy = &message;
    else give_back(message);
}

void MessageMatch::copy_chunks(ArrivedMessage &message) noexcept {
    const int source = message.header.source;
    const std::uint64_t number = message.header.number;
    const std::uint32_t slot = slot_of(number);
    Transport &transport = *of(source).transport;
    const std::byte *eager = places_.mapping->base(places_.owner(source)) +
                             slot * places_.slot_bytes + places_.begin(source);
    const SignalName written{channel_ + slot, written_flag};
    // The last chunk of a message of unknown length is copied as if it were full.
    const std::uint64_t length = Signature(message.header.signature)
                                     .message_bytes()
                                     .value_or(std::numeric_limits<std::uint64_t>::max());
    while (message.chunks == 0 || message.bytes.size() < length) {
        const std::uint64_t word = transport.signalled(source, written), k = message.chunks;
        if (word >> 32 != run_of(number) || static_cast<std::uint32_t>(word) <= k) return;
        const std::uint64_t before = message.bytes.size();
        const std::uint64_t bytes = std::min(places_.chunk_bytes, length - before);
        of(source).space = copies_.reserve(message, bytes, length);
        if (of(source).space != MessageCopies::Space::yes) return;
        message.bytes.resize(before + bytes);
        const std::byte *chunk = eager + k % 2 * places_.chunk_bytes;
        std::copy_n(chunk, bytes, message.bytes.data() + before);
        ++message.chunks;
        transport.signal(source, {places_.channel_for(source) + slot, read_flag},
                         word_of(number, message.chunks));
    }
}

void MessageMatch::give_back(ArrivedMessage &message) noexcept {
    if (message.chunks > 0) copies_.drop(message);
    free_list_.give_back(&message);
}

std::string MessageMatch::obstacle(const PostedReceive &receive) const {
    if (receive.found) return {};
    for (const Source &source : sources_) {
        if (source.space == MessageCopies::Space::yes) continue;
        if (receive.source != VESCOMM_ANY_SOURCE && receive.source != source.rank) continue;
        const bool at_limit = source.space == MessageCopies::Space::at_limit;
        std::string text = fmt::format(
            "this rank holds {:.1f} MiB in {} messages that nobody has received, and {}, so the "
            "next message of rank {} cannot come; receive some of them first",
            static_cast<double>(copies_.bytes()) / (1 << 20), copies_.messages(),
            at_limit ? fmt::format("the limit is {:.1f} MiB",
                                   static_cast<double>(copies_.limit()) / (1 << 20))
                     : "there is no memory for more",
            source.rank);
        if (const ArrivedMessage *message = source.in_slot[slot_of(source.observed)])
            text += fmt::format(", for example {} with tag {} from rank {}",
                                Signature(message->header.signature).text(), message->tag(),
                                source.rank);
        return text;
    }
    return {};
}

}  // namespace vescomm::internal
