// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/match/message_match.h"

#include <algorithm>
#include <limits>
#include <utility>

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

MessageMatch::MessageMatch(EagerPlaces places)
    : places_(std::move(places)),
      channel_(places_.channel_for(places_.rank)),
      sources_(static_cast<std::size_t>(places_.nodes.ranks())) {
    for (int rank = 0; rank < places_.nodes.ranks(); ++rank) {
        of(rank).rank = rank;
        of(rank).local = places_.nodes.together(places_.rank, rank);
        of(rank).transport = places_.transports[static_cast<std::size_t>(rank)];
    }
}

void MessageMatch::post(PostedReceive &receive) noexcept {
    receive.order = ++posts_;
    receive.found = false;
    receive.copy = nullptr;
    if (ArrivedMessage *message = find_unexpected(receive)) return take(receive, *message);
    posted_for(receive.source).add(receive);
}

bool MessageMatch::find(PostedReceive &receive) noexcept {
    if (receive.found) return true;
    if (receive.source != VESCOMM_ANY_SOURCE) {
        observe(of(receive.source), receive);
    } else {
        for (std::size_t i = 0; i < sources_.size() && !receive.found; ++i) {
            observe(sources_[next_source_], receive);
            if (++next_source_ == sources_.size()) next_source_ = 0;
        }
    }
    return receive.found;
}

void MessageMatch::release(PostedReceive &receive) noexcept {
    give_back(*std::exchange(receive.copy, nullptr));
}

// `waiting`: a receive of messages of the source, or of any source. Returns when it has found its
// message, or when no other one has arrived.
void MessageMatch::observe(Source &source, const PostedReceive &waiting) noexcept {
    MessageHeader header;
    bool any = false;
    while (!waiting.found && read_header(source, header)) {
        source.in_slot[slot_of(source.observed)] = nullptr;  // a message before it has left
        if (!give_to_receive(header) && !keep(header)) return;
        ++source.observed;
        any = true;
    }
    ArrivedMessage *in_the_way = source.in_slot[slot_of(source.observed)];
    if (!any && in_the_way != nullptr) copy_chunks(*in_the_way);
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
    return true;
}

// False if there is no memory. The message is then observed again later.
bool MessageMatch::keep(const MessageHeader &header) noexcept {
    ArrivedMessage *message = pool_.take();
    if (message == nullptr) return false;
    message->header = header;
    message->order = ++arrivals_;
    Source &its = of(header.source);
    its.unexpected.add(*message);
    its.in_slot[slot_of(header.number)] = message;
    return true;
}

ArrivedMessage *MessageMatch::find_unexpected(const PostedReceive &receive) noexcept {
    const std::int32_t tag = receive.expected_tag;
    if (receive.source != VESCOMM_ANY_SOURCE) return of(receive.source).unexpected.find(tag);
    ArrivedMessage *oldest = nullptr;
    for (const Source &source : sources_) oldest = older(oldest, source.unexpected.find(tag));
    return oldest;
}

void MessageMatch::take(PostedReceive &receive, ArrivedMessage &message) noexcept {
    Source &its = of(message.header.source);
    its.unexpected.remove(message);
    ArrivedMessage *&in_slot = its.in_slot[slot_of(message.header.number)];
    if (in_slot == &message) in_slot = nullptr;
    receive.found = true;
    receive.header = message.header;
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
        if (bytes > max_copied_bytes - copied_bytes_) return;
        try {
            message.bytes.resize(before + bytes);
        } catch (...) {
            return;
        }
        const std::byte *chunk = eager + k % 2 * places_.chunk_bytes;
        std::copy_n(chunk, bytes, message.bytes.data() + before);
        copied_bytes_ += bytes;
        ++message.chunks;
        transport.signal(source, {places_.channel_for(source) + slot, read_flag},
                         word_of(number, message.chunks));
    }
}

void MessageMatch::give_back(ArrivedMessage &message) noexcept {
    // A small copy keeps its memory for the next one.
    constexpr std::size_t small = 64 << 10;
    copied_bytes_ -= message.bytes.size();
    message.bytes.clear();
    if (message.bytes.capacity() > small) message.bytes = {};
    message.chunks = 0;
    pool_.give_back(&message);
}

}  // namespace vescomm::internal
