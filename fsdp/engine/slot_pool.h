// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides which unit is in which slot. Pure: no memory, no requests.
//
//     empty ──open, prefetch──► holds a unit, pins = n ──close──► pins = 0, may be reused
//
// A slot with a pin is never given to another unit. If there is a slot for each unit, unit u has
// slot u. Otherwise unit u prefers slot u mod slots, so that a regular order uses the same slots in
// every step.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vescomm::fsdp {

class SlotPool {
public:
    static constexpr int none = -1;

    struct Opened {
        int slot = none;  // none: no slot is free
        bool gather = false;  // the unit is not in the slot yet
        int evicted = none;  // unit that was in the slot
    };

    SlotPool(int units, int slots);

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

    int slots() const { return static_cast<int>(held_.size()); }
    int slot_of(int unit) const { return slot_of_[unit]; }
    int pins(int unit) const { return pins_[unit]; }
    std::vector<int> pinned_units() const;

private:
    Opened place(int unit, std::span<const int> soon, bool evict_soon);
    int choose(int unit, std::span<const int> soon, bool evict_soon) const;

    std::vector<int> held_;  // by slot: the unit, or none
    std::vector<std::int64_t> used_;  // by slot: time of the last use
    std::vector<int> slot_of_;  // by unit: the slot, or none
    std::vector<int> pins_;  // by unit
    std::int64_t time_ = 0;
};

}  // namespace vescomm::fsdp
