// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/match/recent_calls.h"

#include "execute/slot_sequences.h"

namespace vescomm::internal {

std::optional<Mismatch> RecentCalls::find_mismatch(
    int rank, const Nodes &nodes, std::uint32_t first_channel,
    std::span<Transport *const> transports) const noexcept {
    for (int peer = 0; peer < nodes.ranks(); ++peer) {
        if (nodes.together(rank, peer)) continue;
        for (std::uint32_t slot = 0; slot < inline_slots; ++slot) {
            const std::uint64_t word = transports[static_cast<std::size_t>(peer)]->signalled(
                peer, {first_channel + slot, advertised_flag});
            if (word == 0) continue;
            const auto theirs = static_cast<std::uint32_t>(word);
            const std::uint32_t mine = shown(SlotSequences::number(word >> 32, slot), peer);
            if (mine != 0 && mine != theirs) return Mismatch{rank, mine, peer, theirs};
        }
    }
    return {};
}

}  // namespace vescomm::internal
