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

// Slots of a staging buffer. Operations use them in turn.
inline constexpr std::uint32_t staging_slots = 4;

// inline_flag: lies before the first byte of a slot of the staging buffer, in the same cache line.
struct InlineFlag {
    std::atomic<std::uint64_t> released;  // SlotSequences::released() of the rank that raised it
    std::atomic<std::uint64_t> call;  // stored last: run number and signature
};
static_assert(sizeof(InlineFlag) == 16 && std::atomic<std::uint64_t>::is_always_lock_free);

// Slot sequence numbers: operation n of a communicator on arrays has number n, from 1, and uses
// slot (n - 1) mod staging_slots once every rank of the node has released number n - staging_slots.
//
// Remembers which numbers this rank has released, and which ones its local peers have released as
// far as this rank has observed. A rank that has observed enough does not read any flag before it
// takes a slot.
class SlotSequences {
public:
    // The number of the operation that is run `run` on `slot`.
    static std::uint64_t number(std::uint64_t run, std::uint32_t slot) {
        return (run - 1) * staging_slots + slot + 1;
    }

    // `locals`: ranks on this node.
    explicit SlotSequences(std::size_t locals) : observed_(locals) {}

    // This rank has released all numbers up to this one.
    std::uint64_t released() const noexcept { return released_; }
    void release(std::uint64_t number) noexcept {
        last_[number % staging_slots] = number;
        // A slot may have been released for a later number already.
        while (last_[(released_ + 1) % staging_slots] >= released_ + 1) ++released_;
    }

    // A local peer has released all numbers up to `number`.
    void observe(std::size_t local, std::uint64_t number) noexcept {
        observed_[local] = std::max(observed_[local], number);
    }
    // True: a local peer has released the previous number that used the slot of `number`.
    bool free(std::size_t local, std::uint64_t number) const noexcept {
        return observed_[local] + staging_slots >= number;
    }

private:
    std::array<std::uint64_t, staging_slots> last_{};  // by slot: latest number released here
    std::uint64_t released_ = 0;
    std::vector<std::uint64_t> observed_;  // by local rank
};

}  // namespace vescomm::internal
