// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "transport/transport.h"

namespace vescomm::internal {

// A memory of one communicator that is a target of puts.
struct PutMemory {
    // The memory of that number at a peer.
    struct Target {
        bool accepted = false;
        std::uint64_t bytes = 0;
    };

    bool offered = false;  // by this rank
    std::byte *base = nullptr;
    std::uint64_t bytes = 0;
    void *registration = nullptr;  // handle of transports that register memory with the network
    std::vector<Target> targets;  // by rank
    std::uint32_t uses = 0;  // puts under way, from and to this rank
};

// The memories of one communicator that this rank offers to its peers, and their sizes at the
// peers.
class PutMemories {
public:
    // `network`: its name in error sentences.
    PutMemories(const char *network, int rank, std::size_t ranks)
        : network_(network), rank_(rank), ranks_(ranks) {}

    // Returns the offer for the peers. Throws if the memory was offered before.
    std::string offer(MemoryId id, std::byte *base, std::uint64_t bytes);

    // Throws if the offer is damaged or is not the expected one.
    void accept(MemoryId id, int peer, std::string_view serialised);

    // Returns nullptr if the memory is unknown. The address is stable until forget().
    PutMemory *find(MemoryId id) noexcept;

    // Finds the memory that a put of this rank targets; `memory` is nullptr if the put has no
    // bytes. Returns nullptr, or the fault of the put.
    const char *find_target(const Put &put, PutMemory *&memory) noexcept;

    // Finds the memory of this rank that a message targets. Returns nullptr, or the fault of the
    // message.
    const char *find_offered(MemoryId id, PutMemory *&memory) noexcept;

    void forget(MemoryId id) noexcept { memories_.erase(id); }
    void clear() noexcept { memories_.clear(); }

    template <typename Visit>
    void for_each(Visit visit) {
        for (auto &[id, memory] : memories_) visit(memory);
    }

private:
    PutMemory &get(MemoryId id);

    const char *const network_;
    const int rank_;
    const std::size_t ranks_;
    std::unordered_map<MemoryId, PutMemory> memories_;
};

}  // namespace vescomm::internal
