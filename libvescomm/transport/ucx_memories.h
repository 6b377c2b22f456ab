// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "transport/transport.h"
#include "transport/ucx_worker.h"

namespace vescomm {

// How a memory of a peer is written.
struct UcxTarget {
    ucp_rkey_h key = nullptr;  // nullptr: not accepted, or empty
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
};

struct UcxMemory {
    // Whether [from, from + bytes) lies in what this rank has registered.
    bool contains(const std::byte *from, std::uint64_t size) const noexcept {
        return from >= base && from + size <= base + bytes;
    }

    std::byte *base = nullptr;  // of this rank's part; nullptr: not offered
    std::uint64_t bytes = 0;
    ucp_mem_h handle = nullptr;
    std::vector<UcxTarget> targets;  // by rank
    std::uint32_t uses = 0;          // puts from this rank under way
};

// The memories that this rank has registered, and the keys to those of its peers.
class UcxMemories {
public:
    UcxMemories(const UcxLibrary &ucx, UcxWorker &worker, int rank, int ranks)
        : ucx_(ucx), worker_(worker), rank_(rank), ranks_(static_cast<std::size_t>(ranks)) {}

    // Registers, and returns the sealed offer for the peers. Throws.
    std::string offer(MemoryId memory, std::byte *base, std::uint64_t bytes);

    // Learns how to write the memory of the peer behind an endpoint. Throws.
    void accept(MemoryId memory, int peer, ucp_ep_h endpoint, std::string_view sealed);

    // nullptr: unknown.
    UcxMemory *find(MemoryId memory) noexcept;

    void forget(MemoryId memory) noexcept;

    // Before the worker is destroyed, and after.
    void destroy_keys() noexcept;
    void unregister() noexcept;

private:
    UcxMemory &get(MemoryId memory);
    void destroy_keys(UcxMemory &memory) noexcept;
    void unregister(UcxMemory &memory) noexcept;

    const UcxLibrary &ucx_;
    UcxWorker &worker_;
    const int rank_;
    const std::size_t ranks_;
    std::unordered_map<MemoryId, UcxMemory> memories_;
};

}  // namespace vescomm
