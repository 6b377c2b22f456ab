// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_memories.h"

#include "base/error.h"
#include "transport/ucx_wire.h"

namespace vescomm {

std::string UcxMemories::offer(MemoryId memory, std::byte *base, std::uint64_t bytes) {
    UcxMemory &offered = get(memory);
    if (offered.base != nullptr)
        throw Error(VESCOMM_ERROR_INTERNAL,
                    "memory " + std::to_string(memory) + " was offered over UCX twice");
    Offer offer;
    offer.memory = memory;
    offer.rank = static_cast<std::uint32_t>(rank_);
    offer.address = reinterpret_cast<std::uintptr_t>(base);
    offer.bytes = bytes;
    if (bytes > 0) {
        const std::string what = "UCX cannot register the " + std::to_string(bytes) +
                                 " bytes of memory " + std::to_string(memory) +
                                 " (RDMA needs them locked: raise `ulimit -l`)";
        ucp_mem_map_params_t parameters{};
        parameters.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
        parameters.address = base;
        parameters.length = bytes;
        parameters.memory_type = UCS_MEMORY_TYPE_HOST;
        ucx_.check(ucx_.mem_map(worker_.context(), &parameters, &offered.handle), what);

        void *key = nullptr;
        std::size_t key_bytes = 0;
        ucx_.check(ucx_.rkey_pack(worker_.context(), offered.handle, &key, &key_bytes), what);
        offer.key.assign(static_cast<const char *>(key), key_bytes);
        ucx_.rkey_buffer_release(key);
    }
    offered.base = base;
    offered.bytes = bytes;
    return seal(offer);
}

void UcxMemories::accept(MemoryId memory, int peer, ucp_ep_h endpoint, std::string_view sealed) {
    const Offer offer = open_offer(sealed, memory, peer);
    UcxTarget &target = get(memory).targets[peer];
    if (target.key != nullptr)
        throw Error(VESCOMM_ERROR_INTERNAL, "the offer of rank " + std::to_string(peer) +
                                                " for memory " + std::to_string(memory) +
                                                " was accepted twice");
    if (offer.bytes > 0)
        ucx_.check(ucx_.ep_rkey_unpack(endpoint, offer.key.data(), &target.key),
                   "UCX cannot reach memory " + std::to_string(memory) + " of rank " +
                       std::to_string(peer));
    target.address = offer.address;
    target.bytes = offer.bytes;
}

UcxMemory *UcxMemories::find(MemoryId memory) noexcept {
    const auto found = memories_.find(memory);
    return found == memories_.end() ? nullptr : &found->second;
}

UcxMemory &UcxMemories::get(MemoryId memory) {
    UcxMemory &found = memories_[memory];
    found.targets.resize(ranks_);
    return found;
}

void UcxMemories::forget(MemoryId memory) noexcept {
    if (UcxMemory *found = find(memory)) {
        destroy_keys(*found);
        unregister(*found);
        memories_.erase(memory);
    }
}

void UcxMemories::destroy_keys() noexcept {
    for (auto &[id, memory] : memories_) destroy_keys(memory);
}

void UcxMemories::unregister() noexcept {
    for (auto &[id, memory] : memories_) unregister(memory);
}

void UcxMemories::destroy_keys(UcxMemory &memory) noexcept {
    for (UcxTarget &target : memory.targets) {
        if (target.key != nullptr) ucx_.rkey_destroy(target.key);
        target = {};
    }
}

void UcxMemories::unregister(UcxMemory &memory) noexcept {
    if (memory.handle != nullptr) ucx_.mem_unmap(worker_.context(), memory.handle);
    memory.handle = nullptr;
    memory.base = nullptr;
    memory.bytes = 0;
}

}  // namespace vescomm
