// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/put_memories.h"

#include "base/error.h"
#include "transport/memory_offer.h"
#include "transport/put_batch.h"

namespace vescomm::internal {

std::string PutMemories::offer(MemoryId id, std::byte *base, std::uint64_t bytes) {
    PutMemory &memory = get(id);
    if (memory.offered)
        throw Error(VESCOMM_ERROR_INTERNAL,
                    "memory " + std::to_string(id) + " was offered over " + network_ + " twice");
    std::string serialised = serialise(Offer{id, static_cast<std::uint32_t>(rank_), bytes});
    memory.offered = true;
    memory.base = base;
    memory.bytes = bytes;
    return serialised;
}

void PutMemories::accept(MemoryId id, int peer, std::string_view serialised) {
    const Offer offer = parse_offer(serialised, id, peer);
    PutMemory::Target &target = get(id).targets[static_cast<std::size_t>(peer)];
    if (target.accepted)
        throw Error(VESCOMM_ERROR_INTERNAL, "the offer of rank " + std::to_string(peer) +
                                                " for memory " + std::to_string(id) +
                                                " was accepted twice");
    target.accepted = true;
    target.bytes = offer.bytes;
}

PutMemory *PutMemories::find(MemoryId id) noexcept {
    const auto found = memories_.find(id);
    return found == memories_.end() ? nullptr : &found->second;
}

const char *PutMemories::find_target(const Put &put, PutMemory *&memory) noexcept {
    memory = nullptr;
    if (put.bytes == 0) return nullptr;
    PutMemory *found = find(put.memory);
    const auto peer = static_cast<std::size_t>(put.peer);
    if (found == nullptr || peer >= found->targets.size() || !found->targets[peer].accepted)
        return "that rank has not offered this memory";
    if (!within(put.offset, put.bytes, found->targets[peer].bytes))
        return "it does not fit into that memory";
    memory = found;
    return nullptr;
}

const char *PutMemories::find_offered(MemoryId id, PutMemory *&memory) noexcept {
    PutMemory *found = find(id);
    memory = found != nullptr && found->offered ? found : nullptr;
    return memory == nullptr ? "its memory is not offered" : nullptr;
}

PutMemory &PutMemories::get(MemoryId id) {
    PutMemory &memory = memories_[id];
    memory.targets.resize(ranks_);
    return memory;
}

}  // namespace vescomm::internal
