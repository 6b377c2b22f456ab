// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vescomm::internal {

// Slots of a staging buffer, large ones for chunks and small ones for inline data. Operations use
// each kind in turn.
inline constexpr std::uint32_t staging_slots = 4, inline_slots = 32;

// inline_flag: the first bytes of an inline slot, in the cache line of the first inline data.
struct InlineFlag {
    std::atomic<std::uint64_t> released;  // SlotSequences::released() of the rank that raised it
    std::atomic<std::uint64_t> call;  // stored last: run number and signature
};
static_assert(sizeof(InlineFlag) == 16 && std::atomic<std::uint64_t>::is_always_lock_free);

// Slot sequence numbers: operation n of a communicator on arrays has number n, from 1. It uses
// inline slot (n - 1) mod inline_slots once every rank of the node has released all numbers up to
// n - inline_slots, and staging slot (n - 1) mod staging_slots once every rank has released those
// up to n - staging_slots. An operation that uses no staging slot does not wait for one.
//
// Remembers which numbers this rank has released, and up to which one its local peers have released
// all, as far as this rank has observed. A rank that has observed enough does not read any flag
// before it takes a slot.
template <std::uint32_t staging_slots, std::uint32_t inline_slots>
class SlotSequencesOf {
    static_assert(inline_slots % staging_slots == 0);

public:
    // The number of the operation that is run `run` on the channel of `inline_slot`.
    static std::uint64_t number(std::uint64_t run, std::uint32_t inline_slot) {
        return (run - 1) * staging_slots + inline_slot % staging_slots + 1;
    }
    // The run of operation `number`. Two operations that use one slot, of either kind, are
    // different runs.
    static std::uint64_t run(std::uint64_t number) { return (number - 1) / staging_slots + 1; }
    static std::uint32_t staging_slot(std::uint64_t number) {
        return static_cast<std::uint32_t>((number - 1) % staging_slots);
    }
    static std::uint32_t inline_slot(std::uint64_t number) {
        return static_cast<std::uint32_t>((number - 1) % inline_slots);
    }

    // `locals`: ranks on this node.
    explicit SlotSequencesOf(std::size_t locals) : observed_(locals) {}

    // This rank has released all numbers up to this one.
    std::uint64_t released() const noexcept { return released_; }
    void release(std::uint64_t number) noexcept {
        last_[number % inline_slots] = number;
        // A slot may have been released for a later number already.
        while (last_[(released_ + 1) % inline_slots] >= released_ + 1) ++released_;
    }

    // A local peer has released all numbers up to `number`.
    void observe(std::size_t local, std::uint64_t number) noexcept {
        observed_[local] = std::max(observed_[local], number);
    }
    // True: a local peer has released the operations that used the inline slot of `number`, or with
    // `staging` also its staging slot, before.
    bool free(std::size_t local, std::uint64_t number, bool staging) const noexcept {
        return observed_[local] + (staging ? staging_slots : inline_slots) >= number;
    }

private:
    std::array<std::uint64_t, inline_slots> last_{};  // by slot: latest number released here
    std::uint64_t released_ = 0;
    std::vector<std::uint64_t> observed_;  // by local rank
};

using SlotSequences = SlotSequencesOf<staging_slots, inline_slots>;

}  // namespace vescomm::internal
