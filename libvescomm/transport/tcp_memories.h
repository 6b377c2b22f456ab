// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "transport/transport.h"

namespace vescomm {

struct TcpMemory {
    // The same memory at a peer.
    struct Target {
        bool accepted = false;
        std::uint64_t bytes = 0;
    };

    bool offered = false;  // by this rank
    std::byte *base = nullptr;
    std::uint64_t bytes = 0;
    std::vector<Target> targets;  // by rank
    std::uint32_t uses = 0;  // puts under way, from and to this rank
};

// The memories of one communicator that this rank offers to its peers, and how large they are
// there.
class TcpMemories {
public:
    TcpMemories(int rank, std::size_t ranks) : rank_(rank), ranks_(ranks) {}

    // Returns the sealed offer for the peers. Throws where it was offered before.
    std::string offer(MemoryId id, std::byte *base, std::uint64_t bytes);

    // Throws when the offer is damaged or not the one expected.
    void accept(MemoryId id, int peer, std::string_view sealed);

    // nullptr: unknown. The address stays until forget().
    TcpMemory *find(MemoryId id) noexcept;

    void forget(MemoryId id) noexcept { memories_.erase(id); }

private:
    TcpMemory &get(MemoryId id);

    const int rank_;
    const std::size_t ranks_;
    std::unordered_map<MemoryId, TcpMemory> memories_;
};

}  // namespace vescomm
