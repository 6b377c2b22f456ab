// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_memories.h"

#include "base/error.h"
#include "transport/ucx_wire.h"

namespace vescomm {

std::string UcxMemories::offer(MemoryId id, std::byte *base, std::uint64_t bytes) {
    UcxMemory &memory = get(id);
    if (memory.offered)
        throw Error(VESCOMM_ERROR_INTERNAL,
                    "memory " + std::to_string(id) + " was offered over UCX twice");
    if (bytes > 0) {
        ucp_mem_map_params_t parameters{};
        parameters.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
        parameters.address = base;
        parameters.length = bytes;
        parameters.memory_type = UCS_MEMORY_TYPE_HOST;
        ucx_.check(ucx_.mem_map(worker_.context(), &parameters, &memory.handle),
                   "UCX cannot register the " + std::to_string(bytes) + " bytes of memory " +
                       std::to_string(id) + " (RDMA needs them locked: raise `ulimit -l`)");
    }
    memory.offered = true;
    memory.base = base;
    memory.bytes = bytes;
    if (bytes > 0) by_address_[base] = &memory;
    return seal(Offer{id, static_cast<std::uint32_t>(rank_), bytes});
}

void UcxMemories::accept(MemoryId id, int peer, std::string_view sealed) {
    const Offer offer = open_offer(sealed, id, peer);
    UcxMemory::Target &target = get(id).targets[peer];
    if (target.accepted)
        throw Error(VESCOMM_ERROR_INTERNAL, "the offer of rank " + std::to_string(peer) +
                                                " for memory " + std::to_string(id) +
                                                " was accepted twice");
    target.accepted = true;
    target.bytes = offer.bytes;
}

UcxMemory *UcxMemories::find(MemoryId id) noexcept {
    const auto found = memories_.find(id);
    return found == memories_.end() ? nullptr : &found->second;
}

const UcxMemory *UcxMemories::holding(const std::byte *from, std::uint64_t bytes) const noexcept {
    auto after = by_address_.upper_bound(from);
    if (after == by_address_.begin()) return nullptr;
    const UcxMemory *memory = std::prev(after)->second;
    const auto offset = static_cast<std::uint64_t>(from - memory->base);
    return within(offset, bytes, memory->bytes) ? memory : nullptr;
}

UcxMemory &UcxMemories::get(MemoryId id) {
    UcxMemory &memory = memories_[id];
    memory.targets.resize(ranks_);
    return memory;
}

void UcxMemories::forget(MemoryId id) noexcept {
    UcxMemory *memory = find(id);
    if (memory == nullptr) return;
    unregister(*memory);
    memories_.erase(id);
}

void UcxMemories::forget_all() noexcept {
    for (auto &[id, memory] : memories_) unregister(memory);
    memories_.clear();
}

void UcxMemories::unregister(UcxMemory &memory) noexcept {
    if (memory.handle == nullptr) return;
    by_address_.erase(memory.base);
    ucx_.mem_unmap(worker_.context(), memory.handle);
}

}  // namespace vescomm
