// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "transport/transport.h"
#include "transport/ucx_worker.h"

namespace vescomm {

struct UcxMemory {
    // What the same memory is at a peer.
    struct Target {
        bool accepted = false;
        std::uint64_t bytes = 0;
    };

    bool offered = false;  // by this rank
    std::byte *base = nullptr;
    std::uint64_t bytes = 0;
    ucp_mem_h handle = nullptr;
    std::vector<Target> targets;  // by rank
    std::uint32_t uses = 0;  // puts under way, from and to this rank
};

// The memories that this rank has registered, and how large they are at its peers.
class UcxMemories {
public:
    UcxMemories(const UcxLibrary &ucx, UcxWorker &worker, int rank, int ranks)
        : ucx_(ucx), worker_(worker), rank_(rank), ranks_(static_cast<std::size_t>(ranks)) {}

    // Registers, and returns the sealed offer for the peers. Throws.
    std::string offer(MemoryId id, std::byte *base, std::uint64_t bytes);

    // Throws when the offer is damaged or not the one expected.
    void accept(MemoryId id, int peer, std::string_view sealed);

    // nullptr: unknown.
    UcxMemory *find(MemoryId id) noexcept;

    // The registered memory that holds [from, from + bytes), or nullptr.
    const UcxMemory *holding(const std::byte *from, std::uint64_t bytes) const noexcept;

    void forget(MemoryId id) noexcept;
    void forget_all() noexcept;

private:
    UcxMemory &get(MemoryId id);
    void unregister(UcxMemory &memory) noexcept;

    const UcxLibrary &ucx_;
    UcxWorker &worker_;
    const int rank_;
    const std::size_t ranks_;
    std::unordered_map<MemoryId, UcxMemory> memories_;
    std::map<const std::byte *, const UcxMemory *> by_address_;
};

}  // namespace vescomm
