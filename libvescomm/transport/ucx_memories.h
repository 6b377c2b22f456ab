// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "transport/put_memories.h"
#include "transport/ucx_worker.h"

namespace vescomm::internal {

// The registration of a memory with UCX; nullptr if it has no bytes.
inline ucp_mem_h registration_of(const PutMemory &memory) noexcept {
    return static_cast<ucp_mem_h>(memory.registration);
}

// The memories of one communicator, registered with the UCX context of its fabric.
class UcxMemories : private PutMemories {
public:
    UcxMemories(const UcxLibrary &ucx, const UcxWorker &worker, int rank, std::size_t ranks)
        : PutMemories("UCX", rank, ranks), ucx_(ucx), worker_(worker) {}

    // Registers a memory and returns the offer for the peers. Throws.
    std::string offer(MemoryId id, std::byte *base, std::uint64_t bytes);

    using PutMemories::accept;
    using PutMemories::find;
    using PutMemories::find_offered;
    using PutMemories::find_target;

    // Returns the registered memory that contains [from, from + bytes), or nullptr.
    const PutMemory *holding(const std::byte *from, std::uint64_t bytes) const noexcept;

    void forget(MemoryId id) noexcept;
    void forget_all() noexcept;

private:
    void unregister(PutMemory &memory) noexcept;

    const UcxLibrary &ucx_;
    const UcxWorker &worker_;
    std::map<const std::byte *, const PutMemory *> by_address_;
};

}  // namespace vescomm::internal
