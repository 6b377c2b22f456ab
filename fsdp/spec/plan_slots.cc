// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/spec/plan_slots.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "fsdp/error.h"

namespace vescomm::fsdp {

namespace {

// Returns the largest number of large units that one unit uses.
std::size_t max_large_needed(const ModelPlan &plan) {
    std::size_t most = 0;
    for (const std::vector<std::size_t> &needs : plan.needs)
        most = std::max(most, static_cast<std::size_t>(std::ranges::count_if(
                                  needs, [&](std::size_t unit) { return plan.large[unit]; })));
    return most;
}

std::uint64_t code_bytes_of(const ModelPlan &plan, std::size_t unit) {
    std::uint64_t bytes = 0;
    for (const std::size_t bucket : plan.of_unit[unit])
        if (plan.buckets[bucket].quantised())
            bytes += align_bucket(plan.buckets[bucket].codes.bytes());
    return bytes;
}

// One code slot for each unit that is gathered ahead, even if there is a slot for each unit.
void make_code_slots(ModelPlan &plan, const Spec &spec) {
    std::uint64_t largest[3] = {0, 0, 0};  // of the other units, of large ones, of experts
    for (std::size_t unit = 0; unit < plan.of_unit.size(); ++unit) {
        const bool behind = plan.slot_ranges[unit].begin >= static_cast<int>(plan.other_slots);
        const bool experts = plan.kinds[unit] == UnitKind::experts;
        std::uint64_t &kind = largest[experts ? 2 : behind ? 1 : 0];
        kind = std::max(kind, code_bytes_of(plan, unit));
    }
    if (largest[0] + largest[1] + largest[2] == 0) return;
    plan.code_counter_bytes = align_bucket(ModelPlan::code_rank_offset +
                                           static_cast<std::uint64_t>(plan.mesh.gather_ranks()));
    const auto add = [&](std::size_t slots, std::uint64_t bytes) {
        if (bytes == 0) return;
        plan.code_slots.resize(plan.code_slots.size() + slots, plan.code_counter_bytes + bytes);
    };
    const auto ahead = static_cast<std::size_t>(spec.options().slots);
    add(std::min(plan.other_slots, ahead), largest[0]);
    plan.shared_code_slots = plan.code_slots.size();
    add(plan.dense_slots - plan.other_slots, largest[1]);
    plan.dense_code_slots = plan.code_slots.size();
    add(std::min(plan.slots.size() - plan.dense_slots, ahead), largest[2]);
}

void make_sum_slots(ModelPlan &plan, const Spec &spec) {
    const auto slots_of = [&](UnitKind kind, std::size_t gradient_slots) {
        const auto at_once = static_cast<std::size_t>(spec.options().gradient_slots);
        return plan.sent_code_bytes(kind) == 0 ? 0 : std::min(gradient_slots, at_once);
    };
    plan.dense_sum_slots = slots_of(UnitKind::dense, plan.dense_gradient_slots);
    plan.sum_slots =
        plan.dense_sum_slots +
        slots_of(UnitKind::experts, plan.gradient_slots.size() - plan.dense_gradient_slots);
}

template <typename Size>
std::vector<std::uint64_t> by_unit(std::size_t units, Size &&size_of) {
    std::vector<std::uint64_t> sizes;
    for (std::size_t unit = 0; unit < units; ++unit) sizes.push_back(size_of(unit));
    return sizes;
}

// Each part of a gradient slot is as large as the largest such part of a unit that uses it.
void make_gradient_slots(ModelPlan &plan) {
    std::size_t most = 0;
    std::vector<std::vector<std::uint64_t>> of_units;
    for (std::size_t unit = 0; unit < plan.of_unit.size(); ++unit) {
        of_units.push_back(plan.gradient_parts_of(unit));
        most = std::max(most, of_units.back().size());
    }
    for (std::size_t part = 0; part < most || part == 0; ++part) {
        const auto sizes =
            slot_bytes(plan.gradient_slot_ranges, by_unit(of_units.size(), [&](std::size_t unit) {
                           return part < of_units[unit].size() ? of_units[unit][part] : 0;
                       }));
        plan.gradient_slots.resize(sizes.size(), 0);
        plan.gradient_slot_parts.resize(sizes.size());
        for (std::size_t slot = 0; slot < sizes.size(); ++slot) {
            plan.gradient_slots[slot] += sizes[slot];
            plan.gradient_slot_parts[slot].push_back(sizes[slot]);
        }
    }
}

// Returns the number of large units whose parameters other units use. Each of them holds its
// gradient slot from the backward pass of the first of these units to its own.
std::size_t shared_large_units(const ModelPlan &plan) {
    std::size_t shared = 0;
    for (std::size_t owner = 0; owner < plan.of_unit.size(); ++owner) {
        const auto uses = [&](const std::vector<std::size_t> &needs) {
            return std::ranges::count(needs, owner) > 0;
        };
        if (plan.large[owner] && std::ranges::count_if(plan.needs, uses) > 1) ++shared;
    }
    return shared;
}

// Units that share slots, in the order of the slots: experts that all ranks have; the others, with
// slots for large ones behind; experts that are divided among ranks.
enum class Pool { common_experts, dense, divided_experts };

std::vector<Pool> pools_of(const ModelPlan &plan, const Spec &spec) {
    std::vector<Pool> pools;
    for (std::size_t unit = 0; unit < spec.units().size(); ++unit)
        pools.push_back(plan.kinds[unit] == UnitKind::experts ? Pool::divided_experts
                        : spec.units()[unit].experts          ? Pool::common_experts
                                                              : Pool::dense);
    return pools;
}

// Returns the ranges of units, for `slots` of the options in each pool, and `large` slots for large
// units. `for_each`: each unit has a slot. `kept`: units that have a slot alone.
std::vector<SlotRange> ranges_for(const ModelPlan &plan, const std::vector<Pool> &pools,
                                  bool for_each, std::size_t slots, std::size_t large,
                                  const std::vector<bool> &kept) {
    std::vector<SlotRange> ranges(plan.of_unit.size());
    int begin = 0;
    for (const Pool pool : {Pool::common_experts, Pool::dense, Pool::divided_experts}) {
        std::vector<std::size_t> units;
        std::vector<SlotUse> uses;
        std::size_t shared = 0;
        for (std::size_t unit = 0; unit < ranges.size(); ++unit) {
            if (pools[unit] != pool) continue;
            units.push_back(unit);
            uses.push_back(kept[unit]         ? SlotUse::kept
                           : plan.large[unit] ? SlotUse::large
                                              : SlotUse::shared);
            if (!kept[unit]) ++shared;
        }
        const bool each = for_each || slots >= shared;
        if (each) uses.assign(units.size(), SlotUse::kept);
        const auto made = slot_ranges(uses, {slots, large});
        int end = begin;
        for (std::size_t i = 0; i < units.size(); ++i) {
            ranges[units[i]] = {begin + made[i].begin, begin + made[i].end};
            end = std::max(end, ranges[units[i]].end);
        }
        begin = end;
    }
    return ranges;
}

// Returns the number of slots of units that are dense. Those of experts are behind them.
std::size_t slots_of_dense_units(const ModelPlan &plan, const std::vector<SlotRange> &ranges) {
    int end = 0;
    for (std::size_t unit = 0; unit < ranges.size(); ++unit)
        if (plan.kinds[unit] == UnitKind::dense) end = std::max(end, ranges[unit].end);
    return static_cast<std::size_t>(end);
}

void require_slots(const ModelPlan &plan, const Spec &spec, std::size_t unit) {
    const auto require = [&](const std::vector<std::size_t> &needs,
                             const std::vector<SlotRange> &ranges, const char *what,
                             const char *option) {
        for (const std::size_t owner : needs) {
            const auto needed = std::ranges::count_if(
                needs, [&](std::size_t other) { return ranges[other] == ranges[owner]; });
            if (needed > ranges[owner].count())
                refuse("unit \"{}\" {} of {} units, and there are {} {}; set {} to {} or more",
                       spec.units()[unit].name, what, needed, ranges[owner].count(), option, option,
                       needed);
        }
    };
    require(plan.needs[unit], plan.slot_ranges, "uses parameters", "slots");
    // A unit whose parameters are all tied or frozen has no gradients of its own.
    std::vector<std::size_t> with_gradients;
    std::ranges::copy_if(plan.needs[unit], std::back_inserter(with_gradients),
                         [&](std::size_t owner) { return plan.trainable(owner); });
    require(with_gradients, plan.gradient_slot_ranges, "has gradients", "gradient_slots");
}

}  // namespace

void make_slots(ModelPlan &plan, const Spec &spec) {
    const std::size_t units = spec.units().size();
    const auto bytes_of = [&](std::size_t unit) {
        return plan.slot_bytes_of(unit) + plan.quantised_bytes_of(unit);
    };
    const auto limit = static_cast<std::uint64_t>(spec.options().large_unit_bytes);
    const std::vector<Pool> pools = pools_of(plan, spec);
    std::vector<bool> kept;
    for (std::size_t unit = 0; unit < units; ++unit) {
        kept.push_back(spec.units()[unit].kept);
        plan.large.push_back(limit > 0 && bytes_of(unit) > limit && pools[unit] == Pool::dense);
    }
    const std::size_t large = max_large_needed(plan);
    plan.gradient_slot_ranges =
        ranges_for(plan, pools, plan.mesh.keep_gradients,
                   static_cast<std::size_t>(spec.options().gradient_slots),
                   large + shared_large_units(plan), std::vector<bool>(units, false));
    plan.dense_gradient_slots = slots_of_dense_units(plan, plan.gradient_slot_ranges);
    make_gradient_slots(plan);
    plan.slot_ranges = ranges_for(plan, pools, plan.mesh.keep_parameters,
                                  static_cast<std::size_t>(spec.options().slots), large, kept);
    plan.dense_slots = slots_of_dense_units(plan, plan.slot_ranges);
    plan.slots =
        slot_bytes(plan.slot_ranges,
                   by_unit(units, [&](std::size_t unit) { return plan.slot_bytes_of(unit); }));
    plan.quantised_slots =
        slot_bytes(plan.slot_ranges,
                   by_unit(units, [&](std::size_t unit) { return plan.quantised_bytes_of(unit); }));
    const bool each_has_one = static_cast<std::ptrdiff_t>(plan.dense_slots) ==
                              std::ranges::count(plan.kinds, UnitKind::dense);
    for (std::size_t unit = 0; unit < units; ++unit)
        if (plan.kinds[unit] == UnitKind::dense &&
            (!plan.large[unit] || kept[unit] || each_has_one))
            plan.other_slots =
                std::max(plan.other_slots, static_cast<std::size_t>(plan.slot_ranges[unit].end));
    // A unit that stays in its slot until the step needs no secondary copy.
    if (each_has_one) plan.mesh.secondary_ranks = 0;
    make_code_slots(plan, spec);
    make_sum_slots(plan, spec);
    for (std::size_t unit = 0; unit < units; ++unit) require_slots(plan, spec, unit);
}

}  // namespace vescomm::fsdp
