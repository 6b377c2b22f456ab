// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The decisions that order and slots make together. The engine and the report share them, so that
// the report predicts the gathers of the engine. Pure.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "fsdp/engine/order.h"
#include "fsdp/engine/slot_pool.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

// Returns the units that are gathered for some units: each after the units whose parameters it
// shares. At most one for each slot.
inline std::vector<int> needed_for(std::span<const int> units, const ModelPlan &plan) {
    std::vector<int> needed;
    std::vector<bool> found(plan.needs.size(), false);
    for (const int unit : units)
        for (const std::size_t owner : plan.needs[unit]) {
            if (found[owner]) continue;
            if (needed.size() == plan.slots.size()) return needed;
            needed.push_back(static_cast<int>(owner));
            found[owner] = true;
        }
    return needed;
}

// Returns the units that are gathered next.
inline std::vector<int> needed_soon(const Order &order, const ModelPlan &plan) {
    return needed_for(order.upcoming(plan.slots.size()), plan);
}

// Returns the units that are gathered first in the next micro-batch of training.
inline std::vector<int> needed_first(const Order &order, const ModelPlan &plan) {
    return needed_for(order.first(plan.slots.size()), plan);
}

// Gives the next units slots as long as there are some. Calls gather(unit, opened) for each unit
// that is not in its slot yet.
template <typename Gather>
void prefetch(SlotPool &pool, std::span<const int> soon, Gather &&gather) {
    std::vector<SlotRange> full;
    for (const int unit : soon) {
        if (std::ranges::count(full, pool.range(unit)) > 0) continue;
        const SlotPool::Opened opened = pool.prefetch(unit, soon);
        if (opened.slot == SlotPool::none) full.push_back(pool.range(unit));
        if (opened.gather) gather(unit, opened);
    }
}

// Closes a unit. Returns true if its slot was emptied, because the unit is not needed soon. Faster
// ranks may then overwrite it.
inline bool close(SlotPool &pool, const ModelPlan &plan, int unit, std::span<const int> soon) {
    pool.close(unit);
    if (pool.pins(unit) > 0 || plan.has_own_slot(static_cast<std::size_t>(unit)) ||
        std::ranges::count(soon, unit) > 0)
        return false;
    pool.drop(unit);
    return true;
}

}  // namespace vescomm::fsdp
