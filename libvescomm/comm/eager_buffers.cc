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
                             {.reserve = !comm->derived()})),
      channel_(comm->numbers().next_channel()),
      peers_(static_cast<std::size_t>(comm->ranks())),
      arrivals_(places()) {
    const std::uint32_t channels = slots * static_cast<std::uint32_t>(comm->ranks());
    for (std::uint32_t taken = 1; taken < channels; ++taken) comm->numbers().next_channel();
    for (int peer = 0; peer < comm->ranks(); ++peer) to(peer).queues.fill({.peer = peer});
}

std::shared_ptr<EagerBuffers> EagerBuffers::create(const std::shared_ptr<Communicator> &comm) {
    return std::shared_ptr<EagerBuffers>(new EagerBuffers(comm));
}

EagerPlaces EagerBuffers::places() const {
    return {.rank = comm_->rank(),
            .nodes = comm_->nodes(),
            .transports = comm_->routes(),
            .mapping = memory_->mapping(),
            .slot_bytes = slot_bytes_,
            .chunk_bytes = chunk_bytes_,
            .first_channel = channel_};
}

std::int64_t EagerBuffers::chunk(vescomm_type_t type) const {
    return static_cast<std::int64_t>(chunk_bytes_ / size_of(type));
}

void EagerBuffers::bind_send(Bindings &bindings, vescomm_type_t type, int peer) {
    bind(bindings, type, peer);
    bindings.message.queues = to(peer).queues.data();
}

void EagerBuffers::bind_receive(Bindings &bindings, vescomm_type_t type, int peer) {
    bind(bindings, type, peer == VESCOMM_ANY_SOURCE ? comm_->rank() : peer);
    bindings.message.arrivals = &arrivals_;
    bindings.message.source = peer;
}

void EagerBuffers::bind(Bindings &bindings, vescomm_type_t type, int peer) const {
    bindings.staging = {.type = type,
                        .memory = memory_->id(),
                        .mapping = memory_->mapping(),
                        .slot_bytes = slot_bytes_};
    bindings.channel = arrivals_.places().channel_for(peer);
    bindings.message.peer_channel = arrivals_.places().channel_for(comm_->rank());
}

Run EagerBuffers::next(int peer) {
    return run_of_message(to(peer).messages++, slots);
}

}  // namespace vescomm::internal
