// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides which units use which slots. A slot is as large as the largest unit that uses it. With
// one unit ten times as large as the others, two slots for all units take 20 times the others; with
// slots of its own for the large unit it is 12:
//
//     units      embedding (large)   block.0   block.1   block.2
//     slots      slot 2              slots 0 and 1, in turn
//
// A unit that is kept has a slot of its own.
//
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace vescomm::fsdp {

// The slots that a unit may use: [begin, end).
struct SlotRange {
    int begin = 0;
    int end = 0;

    int count() const { return end - begin; }
    bool has(int slot) const { return slot >= begin && slot < end; }
    bool operator==(const SlotRange &) const = default;
};

enum class SlotUse { shared, kept, large };

struct SlotNumbers {
    std::size_t shared = 0;
    std::size_t large = 0;
};

// Returns the ranges by unit: shared slots first, then those of units that are kept, then those for
// large units. Units that have as many slots as they are have one each.
std::vector<SlotRange> slot_ranges(std::span<const SlotUse> uses, const SlotNumbers &numbers);

// Returns the bytes of each slot. `unit_bytes`: what a unit needs of its slot.
std::vector<std::uint64_t> slot_bytes(std::span<const SlotRange> ranges,
                                      std::span<const std::uint64_t> unit_bytes);

}  // namespace vescomm::fsdp
