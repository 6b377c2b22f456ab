// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp_memories.h"

#include "base/error.h"
#include "transport/memory_offer.h"

namespace vescomm {

std::string TcpMemories::offer(MemoryId id, std::byte *base, std::uint64_t bytes) {
    TcpMemory &memory = get(id);
    if (memory.offered)
        throw Error(VESCOMM_ERROR_INTERNAL,
                    "memory " + std::to_string(id) + " was offered over TCP twice");
    memory.offered = true;
    memory.base = base;
    memory.bytes = bytes;
    return seal(Offer{id, static_cast<std::uint32_t>(rank_), bytes});
}

void TcpMemories::accept(MemoryId id, int peer, std::string_view sealed) {
    const Offer offer = open_offer(sealed, id, peer);
    TcpMemory::Target &target = get(id).targets[static_cast<std::size_t>(peer)];
    if (target.accepted)
        throw Error(VESCOMM_ERROR_INTERNAL, "the offer of rank " + std::to_string(peer) +
                                                " for memory " + std::to_string(id) +
                                                " was accepted twice");
    target.accepted = true;
    target.bytes = offer.bytes;
}

TcpMemory *TcpMemories::find(MemoryId id) noexcept {
    const auto found = memories_.find(id);
    return found == memories_.end() ? nullptr : &found->second;
}

TcpMemory &TcpMemories::get(MemoryId id) {
    TcpMemory &memory = memories_[id];
    memory.targets.resize(ranks_);
    return memory;
}

}  // namespace vescomm
