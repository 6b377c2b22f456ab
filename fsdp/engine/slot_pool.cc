// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/slot_pool.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace vescomm::fsdp {

SlotPool::SlotPool(std::vector<SlotRange> ranges, std::size_t slots)
    : ranges_(std::move(ranges)),
      held_(slots, none),
      used_(slots, 0),
      slot_of_(ranges_.size(), none),
      pins_(ranges_.size(), 0) {
    for (auto unit = ranges_.begin(); unit != ranges_.end(); ++unit)
        number_.push_back(static_cast<int>(std::count(ranges_.begin(), unit, *unit)));
}

SlotPool::Opened SlotPool::open(int unit, std::span<const int> soon) {
    const Opened opened = place(unit, soon, true);
    if (opened.slot != none) ++pins_[unit];
    return opened;
}

SlotPool::Opened SlotPool::prefetch(int unit, std::span<const int> soon) {
    return place(unit, soon, false);
}

void SlotPool::close(int unit) {
    assert(pins_[unit] > 0);
    --pins_[unit];
}

void SlotPool::drop(int unit) {
    if (slot_of_[unit] == none || pins_[unit] > 0) return;
    held_[slot_of_[unit]] = none;
    slot_of_[unit] = none;
}

void SlotPool::drop_all() {
    for (int unit = 0; unit < static_cast<int>(slot_of_.size()); ++unit) drop(unit);
}

void SlotPool::drop_pinned() {
    for (int unit = 0; unit < static_cast<int>(pins_.size()); ++unit) {
        if (pins_[unit] == 0) continue;
        pins_[unit] = 0;
        drop(unit);
    }
}

std::vector<std::pair<int, int>> SlotPool::by_last_use() const {
    std::vector<std::pair<int, int>> slots;
    for (std::size_t slot = 0; slot < held_.size(); ++slot)
        slots.emplace_back(static_cast<int>(slot), held_[slot]);
    std::ranges::stable_sort(slots, {}, [this](const auto &slot) { return used_[slot.first]; });
    return slots;
}

std::vector<int> SlotPool::pinned_beside(int unit) const {
    std::vector<int> units;
    for (int other = 0; other < static_cast<int>(pins_.size()); ++other)
        if (pins_[other] > 0 && ranges_[other] == ranges_[unit]) units.push_back(other);
    return units;
}

SlotPool::Opened SlotPool::place(int unit, std::span<const int> soon, bool evict_soon) {
    Opened opened;
    opened.slot = slot_of_[unit];
    if (opened.slot == none) {
        opened.slot = choose(unit, soon, evict_soon);
        if (opened.slot == none) return opened;
        opened.gather = true;
        opened.evicted = held_[opened.slot];
        if (opened.evicted != none) slot_of_[opened.evicted] = none;
        held_[opened.slot] = unit;
        slot_of_[unit] = opened.slot;
    }
    used_[opened.slot] = ++time_;
    return opened;
}

// Prefers, in this order: an empty slot, a unit that is not needed soon, the unit that is needed
// last. Among equal ones: the preferred slot of the unit, then the one that was used first.
int SlotPool::choose(int unit, std::span<const int> soon, bool evict_soon) const {
    const SlotRange range = ranges_[unit];
    if (range.count() == 0) return none;
    const auto rank_of = [&](int slot) -> std::int64_t {
        const int held = held_[slot];
        if (held == none) return -2;
        const auto at = std::find(soon.begin(), soon.end(), held);
        return at == soon.end() ? -1 : soon.end() - at;
    };
    int best = none;
    const auto better = [&](int a, int b) {
        if (rank_of(a) != rank_of(b)) return rank_of(a) < rank_of(b);
        const int preferred = range.begin + number_[unit] % range.count();
        if ((a == preferred) != (b == preferred)) return a == preferred;
        return used_[a] < used_[b];
    };
    for (int slot = range.begin; slot < range.end; ++slot) {
        if (held_[slot] != none && pins_[held_[slot]] > 0) continue;
        if (!evict_soon && rank_of(slot) >= 0) continue;
        if (best == none || better(slot, best)) best = slot;
    }
    return best;
}

}  // namespace vescomm::fsdp
