// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/gathered_units.h"

#include <algorithm>
#include <utility>

#include "fsdp/engine/prefetch.h"
#include "fsdp/error.h"
#include "fsdp/report/traffic.h"

namespace vescomm::fsdp {

GatheredUnits::GatheredUnits(const Spec &spec, const ModelPlan &plan, int position,
                             std::span<const std::string> unit_names,
                             std::unique_ptr<UnitMemory> slots, vescomm_fsdp_counters_t &counters,
                             std::vector<vescomm_fsdp_unit_counters_t> &unit_counters)
    : plan_(plan),
      unit_names_(unit_names),
      position_(position),
      counters_(counters),
      unit_counters_(unit_counters),
      order_(spec.options().order, static_cast<int>(unit_names.size())),
      pool_(plan.slot_ranges, plan.slots.size()),
      slots_(std::move(slots)) {}

void GatheredUnits::begin(bool evaluation) {
    end();
    order_.begin(evaluation);
    running_ = true;
}

void GatheredUnits::end() {
    if (!running_) return;
    const std::uint64_t before = order_.deviations();
    order_.end();
    counters_.deviations += order_.deviations() - before;
    running_ = false;
}

void GatheredUnits::gather(int unit, int slot, const Announcement &announcement) {
    const bool fills = slots_->gather(unit, slot, announcement);
    const std::uint64_t within =
        group_gather_bytes(plan_, static_cast<std::size_t>(unit), position_);
    std::uint64_t bytes = gather_bytes(plan_, static_cast<std::size_t>(unit), position_);
    if (fills) bytes += fill_bytes(plan_, static_cast<std::size_t>(unit), position_);
    ++counters_.gathers;
    counters_.gather_bytes += bytes;
    counters_.group_gather_bytes += within;
    vescomm_fsdp_unit_counters_t &counters = unit_counters_[static_cast<std::size_t>(unit)];
    ++counters.gathers;
    counters.gather_bytes += bytes;
}

void GatheredUnits::pin(std::size_t unit, std::span<const int> soon,
                        const Announcement &announcement) {
    for (const std::size_t owner : plan_.needs[unit]) {
        const SlotPool::Opened opened = pool_.open(static_cast<int>(owner), soon);
        if (opened.slot == SlotPool::none) {
            std::string holders;
            for (const int holder : pool_.pinned_beside(static_cast<int>(owner)))
                holders += (holders.empty() ? "\"" : ", \"") + unit_names_[holder] + "\"";
            const int slots = pool_.range(static_cast<int>(owner)).count();
            if (plan_.large[owner])
                refuse(
                    "all {} slots for units of more than large_unit_bytes hold open units: {}; "
                    "close one of them first, or set large_unit_bytes to {} or more",
                    slots, holders, plan_.slot_bytes_of(owner) + plan_.quantised_bytes_of(owner));
            refuse(
                "all {} slots hold open units: {}; close one of them first, or set slots to {} "
                "or more",
                slots, holders, slots + 1);
        }
        if (opened.gather) gather(static_cast<int>(owner), opened.slot, announcement);
    }
}

void GatheredUnits::open(std::size_t unit, Use use, const Announcement &announcement) {
    if (use != Use::recomputation) {
        const std::uint64_t before = order_.deviations();
        order_.opened(static_cast<int>(unit), use == Use::backward);
        counters_.deviations += order_.deviations() - before;
    }
    const std::vector<int> soon = needed_soon(order_, plan_);
    pin(unit, soon, announcement);
    for (const std::size_t owner : plan_.needs[unit])
        slots_->await(pool_.slot_of(static_cast<int>(owner)));
    prefetch(pool_, soon, [&](int next, const SlotPool::Opened &opened) {
        gather(next, opened.slot, announcement);
    });
}

void GatheredUnits::start(std::size_t unit, const Announcement &announcement) {
    pin(unit, needed_soon(order_, plan_), announcement);
}

void GatheredUnits::close(std::size_t unit) {
    std::vector<int> soon;  // not needed for units that stay in their slots
    if (!std::ranges::all_of(plan_.needs[unit],
                             [&](std::size_t owner) { return plan_.has_own_slot(owner); }))
        soon = needed_soon(order_, plan_);
    for (const std::size_t owner : plan_.needs[unit]) {
        const int slot = pool_.slot_of(static_cast<int>(owner));
        slots_->closed(slot);
        if (!fsdp::close(pool_, plan_, static_cast<int>(owner), soon)) continue;
        slots_->await(slot);
        slots_->release(slot);
    }
    slots_->advance();
}

void GatheredUnits::forget() {
    slots_->await_all();
    slots_->forget_copies();
    pool_.drop_all();
}

std::vector<int> GatheredUnits::first_units() const {
    return needed_first(order_, plan_);
}

void GatheredUnits::start_first(int unit, std::span<const int> first,
                                const Announcement &announcement) {
    const SlotPool::Opened opened = pool_.prefetch(unit, first);
    if (opened.gather) gather(unit, opened.slot, announcement);
}

void *GatheredUnits::data(std::size_t parameter) {
    const ParameterPlace &at = *plan_.parameter_places[parameter];
    const Bucket &bucket = plan_.buckets[at.bucket];
    const int slot = pool_.slot_of(static_cast<int>(bucket.unit));
    slots_->await(slot);
    auto *data = static_cast<std::byte *>(slots_->data(slot, at.bucket));
    if (data == nullptr) return nullptr;
    return data + static_cast<std::size_t>(bucket.places[at.place].offset) *
                      vescomm_type_get_bytes(bucket.type);
}

}  // namespace vescomm::fsdp
