// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/eager_buffers.h"

#include <algorithm>

#include "base/types.h"

namespace vescomm::internal {

namespace {

// Target size of all eager buffers of a rank together. A chunk that is too small passes too little
// between two waits; one that is too large does not stay in the caches.
constexpr std::uint64_t eager_buffers_bytes = 4 << 20;
constexpr std::uint64_t min_chunk = 1 << 10;
constexpr std::uint64_t max_chunk = 64 << 10;

}  // namespace

// Whole cache lines.
std::uint64_t EagerBuffers::chunk_bytes_for(int ranks) {
    const std::uint64_t even = eager_buffers_bytes / (std::uint64_t{slots} * 2 * ranks);
    return std::clamp(even, min_chunk, max_chunk) / 64 * 64;
}

EagerBuffers::EagerBuffers(const std::shared_ptr<Communicator> &comm)
    : comm_(comm),
      chunk_bytes_(chunk_bytes_for(comm->ranks())),
      slot_bytes_(2 * chunk_bytes_ * static_cast<std::uint64_t>(comm->ranks())),
      memory_(Memory::create(comm, slots * slot_bytes_, VESCOMM_HOST, VESCOMM_PER_RANK,
                             !comm->derived())),
      channel_(comm->numbers().next_channel()),
      peers_(static_cast<std::size_t>(comm->ranks())) {
    const std::uint32_t channels = channel_for(comm->ranks()) - channel_;
    for (std::uint32_t taken = 1; taken < channels; ++taken) comm->numbers().next_channel();
    for (int peer = 0; peer < comm->ranks(); ++peer)
        for (const bool receives : {false, true})
            direction(peer, receives).queues.fill({.peer = peer, .receives = receives});
}

std::shared_ptr<EagerBuffers> EagerBuffers::create(const std::shared_ptr<Communicator> &comm) {
    return std::shared_ptr<EagerBuffers>(new EagerBuffers(comm));
}

EagerBuffers::Direction &EagerBuffers::direction(int peer, bool receives) {
    Peer &its = peers_[static_cast<std::size_t>(peer)];
    return receives ? its.from : its.to;
}

std::uint32_t EagerBuffers::channel_for(int peer) const {
    return channel_ + slots * static_cast<std::uint32_t>(peer);
}

std::int64_t EagerBuffers::chunk(vescomm_type_t type) const {
    return static_cast<std::int64_t>(chunk_bytes_ / size_of(type));
}

void EagerBuffers::bind(Bindings &bindings, vescomm_type_t type, int peer, bool receives) {
    bindings.staging = {.type = type,
                        .memory = memory_->id(),
                        .mapping = memory_->mapping(),
                        .slot_bytes = slot_bytes_};
    bindings.channel = channel_for(peer);
    bindings.peer_channel = channel_for(comm_->rank());
    bindings.queues = direction(peer, receives).queues.data();
}

Run EagerBuffers::next(int peer, bool receives) {
    const std::uint64_t before = direction(peer, receives).messages++;
    return {.number = before / slots + 1, .slot = static_cast<std::uint32_t>(before % slots)};
}

}  // namespace vescomm::internal
