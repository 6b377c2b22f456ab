// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/mailbox.h"

#include <algorithm>

#include "base/types.h"

namespace vescomm {

namespace {

// What all boxes of a rank should take together. A window that is too small passes too little
// between two waits; one that is too large leaves the caches.
constexpr std::uint64_t mailbox_bytes = 4 << 20;
constexpr std::uint64_t least_window = 1 << 10;
constexpr std::uint64_t most_window = 64 << 10;

}  // namespace

// Whole cache lines.
std::uint64_t Mailbox::window_bytes_for(int ranks) {
    const std::uint64_t even = mailbox_bytes / (std::uint64_t{slots} * 2 * ranks);
    return std::clamp(even, least_window, most_window) / 64 * 64;
}

Mailbox::Mailbox(const std::shared_ptr<Communicator> &comm)
    : comm_(comm),
      window_bytes_(window_bytes_for(comm->ranks())),
      slot_bytes_(2 * window_bytes_ * static_cast<std::uint64_t>(comm->ranks())),
      memory_(Memory::create(comm, slots * slot_bytes_, VESCOMM_HOST, VESCOMM_PER_RANK,
                             !comm->derived())),
      channel_(comm->next_channel()),
      peers_(static_cast<std::size_t>(comm->ranks())) {
    const std::uint32_t channels = channel_for(comm->ranks()) - channel_;
    for (std::uint32_t more = 1; more < channels; ++more) comm->next_channel();
    for (int peer = 0; peer < comm->ranks(); ++peer)
        for (const bool receives : {false, true})
            direction(peer, receives).queues.fill({.peer = peer, .receives = receives});
}

std::shared_ptr<Mailbox> Mailbox::create(const std::shared_ptr<Communicator> &comm) {
    return std::shared_ptr<Mailbox>(new Mailbox(comm));
}

Mailbox::Direction &Mailbox::direction(int peer, bool receives) {
    Peer &its = peers_[static_cast<std::size_t>(peer)];
    return receives ? its.from : its.to;
}

std::uint32_t Mailbox::channel_for(int peer) const {
    return channel_ + slots * static_cast<std::uint32_t>(peer);
}

std::int64_t Mailbox::window(vescomm_type_t type) const {
    return static_cast<std::int64_t>(window_bytes_ / size_of(type));
}

void Mailbox::bind(Bindings &bindings, vescomm_type_t type, int peer, bool receives) {
    bindings.stage = {.type = type,
                      .memory = memory_->id(),
                      .mapping = memory_->mapping(),
                      .slot_bytes = slot_bytes_};
    bindings.channel = channel_for(peer);
    bindings.peer_channel = channel_for(comm_->rank());
    bindings.queues = direction(peer, receives).queues.data();
}

Run Mailbox::next(int peer, bool receives) {
    const std::uint64_t before = direction(peer, receives).messages++;
    return {.number = before / slots + 1, .slot = static_cast<std::uint32_t>(before % slots)};
}

}  // namespace vescomm
