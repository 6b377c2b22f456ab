// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "transport/transport.h"

namespace vescomm {

// A memory of one communicator into which ranks put.
struct PutMemory {
    // The same memory at a peer.
    struct Target {
        bool accepted = false;
        std::uint64_t bytes = 0;
    };

    bool offered = false;  // by this rank
    std::byte *base = nullptr;
    std::uint64_t bytes = 0;
    void *registration = nullptr;  // with the network, for transports that register memory
    std::vector<Target> targets;  // by rank
    std::uint32_t uses = 0;  // puts under way, from and to this rank
};

// The memories of one communicator that this rank offers to its peers, and how large they are
// there.
class PutMemories {
public:
    // `network`: its name in sentences.
    PutMemories(const char *network, int rank, std::size_t ranks)
        : network_(network), rank_(rank), ranks_(ranks) {}

    // Returns the sealed offer for the peers. Throws where it was offered before.
    std::string offer(MemoryId id, std::byte *base, std::uint64_t bytes);

    // Throws when the offer is damaged or not the one expected.
    void accept(MemoryId id, int peer, std::string_view sealed);

    // nullptr: unknown. The address stays until forget().
    PutMemory *find(MemoryId id) noexcept;

    // Finds the memory that a put of this rank goes to; nullptr where the put has no bytes. Returns
    // nullptr, or what is wrong with the put.
    const char *find_target(const Put &put, PutMemory *&memory) noexcept;

    // Finds the memory of this rank that a message goes to. Returns nullptr, or what is wrong with
    // the message.
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

}  // namespace vescomm
