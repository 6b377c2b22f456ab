// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/message_receiver.h"

#include <algorithm>
#include <cstring>

#include "base/types.h"

namespace vescomm::internal {

MessageReceiver::MessageReceiver(const Bindings &bindings, RunContext &context, Program &program)
    : bindings_(bindings),
      context_(context),
      program_(program),
      bound_to_(program.lanes[0].steps[0].peer) {
    receive_.source = bindings.message.source;
}

bool MessageReceiver::find() noexcept {
    if (!bindings_.message.arrivals->find(receive_)) return false;
    context_.start(run_of_message(message().number, EagerPlaces::slots));
    if (message().source != bound_to_) bind_to(message().source);
    return true;
}

// Only a receive from any source is bound to more than one rank.
void MessageReceiver::bind_to(int source) noexcept {
    const EagerPlaces &places = bindings_.message.arrivals->places();
    const auto base = static_cast<std::uint32_t>(program_.bases.staging_of(
        static_cast<std::size_t>(bindings_.nodes.local_rank(places.owner(source)))));
    const std::uint64_t before = places.begin(bound_to_), now = places.begin(source);
    Transport *transport = bindings_.transports[static_cast<std::size_t>(source)];
    for (BoundStep &step : program_.lanes[0].steps) {
        step.peer = source;
        step.transport = transport;
        if (step.action != Action::copy) continue;
        step.from.address.base = base;
        step.from.address.offset += now - before;
    }
    context_.set_channel(places.channel_for(source));
    bound_to_ = source;
}

MessageReceiver::Moved MessageReceiver::take_copy() noexcept {
    if (!has_copy()) return {};
    const auto &copy = receive_.copy->bytes;
    Moved moved{.chunks = receive_.copy->chunks};
    for (const Piece &piece : bindings_.output.pieces) {  // one, or none
        moved.bytes =
            std::min<std::uint64_t>(copy.size(), static_cast<std::uint64_t>(piece.elements) *
                                                     size_of(bindings_.output.type));
        std::memcpy(program_.bases.output(), copy.data(), moved.bytes);
    }
    bindings_.message.arrivals->release(receive_);
    return moved;
}

std::optional<Mismatch> MessageReceiver::find_mismatch() const noexcept {
    if (!receive_.found || expected()) return {};
    return Mismatch{.rank = bindings_.rank,
                    .signature = bindings_.match.signature,
                    .other = message().source,
                    .other_signature = message().signature,
                    .message = true};
}

}  // namespace vescomm::internal
