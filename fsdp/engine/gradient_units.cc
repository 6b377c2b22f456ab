// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/gradient_units.h"

#include <string>

#include "fsdp/error.h"

namespace vescomm::fsdp {

GradientUnits::GradientUnits(const Model &model)
    : model_(model),
      pool_(model.plan.gradient_slot_ranges, model.plan.gradient_slots.size()),
      writes_(model.spec),
      summed_(model.plan.of_unit.size(), false) {}

int GradientUnits::slot_for(std::size_t parameter) const {
    const ParameterPlace &at = *model_.plan.parameter_places[parameter];
    return slot_of(static_cast<int>(model_.plan.buckets[at.bucket].unit));
}

std::size_t GradientUnits::offset_of(std::size_t parameter) const {
    const ParameterPlace &at = *model_.plan.parameter_places[parameter];
    const Bucket &bucket = model_.plan.buckets[at.bucket];
    return static_cast<std::size_t>(bucket.places[at.place].offset) *
           vescomm_type_get_bytes(bucket.gradient_type);
}

int GradientUnits::open(int unit) {
    const SlotPool::Opened opened = pool_.open(unit);
    if (opened.slot != SlotPool::none) {
        writes_.begin(model_.plan, unit);
        return opened.slot;
    }
    std::string holders;
    for (const int holder : pool_.pinned_beside(unit))
        holders += (holders.empty() ? "\"" : ", \"") + model_.unit_names[holder] + "\"";
    const int slots = pool_.range(unit).count();
    if (model_.plan.large[unit])
        refuse(
            "all {} gradient slots for units of more than large_unit_bytes are in use by units "
            "{}; end their backward passes first, or set large_unit_bytes to {} or more",
            slots, holders, model_.plan.slot_bytes_of(unit) + model_.plan.quantised_bytes_of(unit));
    refuse(
        "all {} gradient slots are in use by units {}; end the backward passes of all their uses "
        "first, call vescomm_fsdp_begin_backward() before a recomputation, or set gradient_slots "
        "to {} or more",
        slots, holders, slots + 1);
}

bool GradientUnits::close(int unit) {
    pool_.close(unit);
    pool_.drop(unit);
    const bool adds = summed_[unit];
    summed_[unit] = true;
    return adds;
}

void GradientUnits::begin_step() {
    summed_.assign(summed_.size(), false);
}

void GradientUnits::drop() {
    pool_.drop_pinned();
    begin_step();
}

}  // namespace vescomm::fsdp
