// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "transport/ucx_memories.h"

#include <iterator>

#include "transport/put_batch.h"

namespace vescomm::internal {

std::string UcxMemories::offer(MemoryId id, std::byte *base, std::uint64_t bytes) {
    std::string serialised = PutMemories::offer(id, base, bytes);
    if (bytes == 0) return serialised;
    PutMemory &memory = *find(id);
    try {
        ucp_mem_map_params_t parameters{};
        parameters.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
        parameters.address = base;
        parameters.length = bytes;
        parameters.memory_type = UCS_MEMORY_TYPE_HOST;
        by_address_[base] = &memory;
        ucp_mem_h handle = nullptr;
        ucx_.check(ucx_.mem_map(worker_.context(), &parameters, &handle),
                   "UCX cannot register the " + std::to_string(bytes) + " bytes of memory " +
                       std::to_string(id) + " (RDMA needs them locked: raise `ulimit -l`)");
        memory.registration = handle;
    } catch (...) {
        by_address_.erase(base);
        memory.offered = false;
        throw;
    }
    return serialised;
}

const PutMemory *UcxMemories::holding(const std::byte *from, std::uint64_t bytes) const noexcept {
    auto after = by_address_.upper_bound(from);
    if (after == by_address_.begin()) return nullptr;
    const PutMemory *memory = std::prev(after)->second;
    const auto offset = static_cast<std::uint64_t>(from - memory->base);
    return within(offset, bytes, memory->bytes) ? memory : nullptr;
}

void UcxMemories::forget(MemoryId id) noexcept {
    PutMemory *memory = find(id);
    if (memory == nullptr) return;
    unregister(*memory);
    PutMemories::forget(id);
}

void UcxMemories::forget_all() noexcept {
    for_each([this](PutMemory &memory) { unregister(memory); });
    clear();
}

void UcxMemories::unregister(PutMemory &memory) noexcept {
    if (memory.registration == nullptr) return;
    by_address_.erase(memory.base);
    ucx_.mem_unmap(worker_.context(), registration_of(memory));
    memory.registration = nullptr;
}

}  // namespace vescomm::internal
