// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides which unit is in which slot. Pure: no memory, no requests.
//
//     empty ──open, prefetch──► holds a unit, pins = n ──close──► pins = 0, may be reused
//
// A slot with a pin is never given to another unit. A unit uses the slots of its range. Among n of
// them unit u prefers number u mod n, so that a regular order uses the same slots in every step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/spec/slot_ranges.h"

namespace vescomm::fsdp {

class SlotPool {
public:
    static constexpr int none = -1;

    struct Opened {
        int slot = none;  // none: no slot is free
        bool gather = false;  // the unit is not in the slot yet
        int evicted = none;  // unit that was in the slot
    };

    // `ranges`: the slots of each unit.
    SlotPool(std::vector<SlotRange> ranges, std::size_t slots);

    // Gives a unit a slot, or finds the one that it has, and adds a pin. `soon` are units that are
    // needed next; others are evicted first. Returns no slot if all are pinned.
    Opened open(int unit, std::span<const int> soon = {});
    // Gives a unit a slot without a pin. Evicts only units that are not needed soon.
    Opened prefetch(int unit, std::span<const int> soon);
    // Removes a pin.
    void close(int unit);
    // Empties the slot of a unit without pins.
    void drop(int unit);
    // Empties all slots without pins.
    void drop_all();
    // Removes all pins, and empties the slots of the units that had one.
    void drop_pinned();

    const SlotRange &range(int unit) const { return ranges_[unit]; }
    int slot_of(int unit) const { return slot_of_[unit]; }
    int pins(int unit) const { return pins_[unit]; }
    // The slots in the order of their last use, each with its unit. Without pins, pools that have
    // this in common decide alike.
    std::vector<std::pair<int, int>> by_last_use() const;
    // Units with pins, among those that use the slots of a unit.
    std::vector<int> pinned_beside(int unit) const;

private:
    Opened place(int unit, std::span<const int> soon, bool evict_soon);
    int choose(int unit, std::span<const int> soon, bool evict_soon) const;

    std::vector<SlotRange> ranges_;  // by unit
    std::vector<int> number_;  // by unit: the units with the same range before it
    std::vector<int> held_;  // by slot: the unit, or none
    std::vector<std::int64_t> used_;  // by slot: time of the last use
    std::vector<int> slot_of_;  // by unit: the slot, or none
    std::vector<int> pins_;  // by unit
    std::int64_t time_ = 0;
};

}  // namespace vescomm::fsdp
