// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace vescomm {

// inline_flag, before the first byte of a staging buffer.
struct InlineFlag {
    std::atomic<std::uint64_t> turns;  // Turns::mine() of the rank whose stage it is
    std::atomic<std::uint64_t> called;  // stored last: the number of the run, and what was called
};
static_assert(sizeof(InlineFlag) == 16 && std::atomic<std::uint64_t>::is_always_lock_free);

// Of a staging buffer.
inline constexpr std::uint32_t staging_slots = 4;

// Of an exchange: by peer, what the two of them must know alike. nullptr: it is none.
using PairDigests = std::shared_ptr<const std::vector<std::uint32_t>>;

// What a rank calls as `signature`, as it is told to `peer`.
inline std::uint32_t signature_for(int peer, std::uint32_t signature,
                                   const PairDigests &pairs) noexcept {
    return signature ^ (pairs ? (*pairs)[static_cast<std::size_t>(peer)] : 0);
}

// Operations take turns at the slots of a staging buffer, numbered from 1. How many turns, in a
// row, this rank and the others of its node have let go, as far as it has heard: who has heard
// enough need not look at anybody's flag before it takes a slot. And what this rank has called of
// late: one of another node may be far behind, and wait for something else.
class Turns {
public:
    static std::uint64_t turn_of(std::uint64_t run, std::uint32_t slot) {
        return (run - 1) * staging_slots + slot + 1;
    }

    explicit Turns(std::size_t locals) : heard_(locals) {}

    std::uint64_t mine() const noexcept { return mine_; }
    void let_go(std::uint64_t turn) noexcept {
        last_[turn % staging_slots] = turn;
        // A slot may have had another turn since; it was let go in between.
        while (last_[(mine_ + 1) % staging_slots] >= mine_ + 1) ++mine_;
    }

    void hear(std::size_t local, std::uint64_t turns) noexcept {
        heard_[local] = std::max(heard_[local], turns);
    }
    // Whether a rank has let go what was in the slot of `turn` before.
    bool free(std::size_t local, std::uint64_t turn) const noexcept {
        return heard_[local] + staging_slots >= turn;
    }

    void call(std::uint64_t turn, std::uint32_t signature, const PairDigests &pairs) noexcept {
        Called &call = calls_[turn % calls_.size()];
        call.turn = turn;
        call.signature = signature;
        if (call.pairs != pairs) call.pairs = pairs;
    }
    // As it is told to `peer`. 0: not known, or no longer.
    std::uint32_t called(std::uint64_t turn, int peer) const noexcept {
        const Called &call = calls_[turn % calls_.size()];
        return call.turn == turn ? signature_for(peer, call.signature, call.pairs) : 0;
    }

private:
    struct Called {
        std::uint64_t turn = 0;
        std::uint32_t signature = 0;
        PairDigests pairs;
    };

    std::array<std::uint64_t, staging_slots>
        last_{};  // by slot: the last turn that this rank has let go
    std::uint64_t mine_ = 0;
    std::vector<std::uint64_t> heard_;  // by rank of the node
    std::array<Called, 64> calls_{};
};

}  // namespace vescomm
