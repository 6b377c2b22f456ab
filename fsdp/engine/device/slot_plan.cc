// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/slot_plan.h"

#include <algorithm>
#include <numeric>

#include "fsdp/error.h"
#include "fsdp/spec/gather_parts.h"

namespace vescomm::fsdp::device {

namespace {

constexpr std::uint64_t alignment = 256;  // of device buffers within memory

std::uint64_t align(std::uint64_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
}

std::size_t slot_count(const ModelPlan &plan, SlotUse use) {
    switch (use) {
        case SlotUse::parameters:
            return plan.slots.size();
        case SlotUse::codes:
            return plan.code_slots.size();
        default:
            return plan.gradient_slots.size();
    }
}

}  // namespace

SlotPlan::SlotPlan(const ModelPlan &plan, SlotUse use)
    : plan_(plan),
      use_(use),
      sizes_(slot_count(plan, use), 0),
      kinds_(sizes_.size(), UnitKind::dense),
      offsets_(plan.buckets.size(), 0) {
    for (std::size_t unit = 0; unit < plan.of_unit.size(); ++unit) {
        std::uint64_t end = 0;
        for (const std::size_t bucket : plan.of_unit[unit]) {
            if (!has(bucket)) continue;
            offsets_[bucket] = end;
            end += align(bytes_of(bucket));
        }
        for (const int slot : slots_of(unit)) {
            sizes_[slot] = std::max(sizes_[slot], end);
            kinds_[slot] = plan.kinds[unit];
        }
    }
}

std::uint64_t SlotPlan::bytes() const {
    return std::accumulate(sizes_.begin(), sizes_.end(), std::uint64_t{0});
}

std::vector<int> SlotPlan::slots_of(std::size_t unit) const {
    const SlotRange range =
        use_ == SlotUse::gradients ? plan_.gradient_slot_ranges[unit] : plan_.slot_ranges[unit];
    std::vector<int> slots;
    for (int slot = range.begin; slot < range.end; ++slot) {
        const int of_use = use_ == SlotUse::codes ? plan_.code_slot_for(slot) : slot;
        // Unit slots share code slots. -1: the units have no codes.
        if (of_use >= 0 && std::ranges::find(slots, of_use) == slots.end()) slots.push_back(of_use);
    }
    return slots;
}

bool SlotPlan::has(std::size_t bucket) const {
    const Bucket &planned = plan_.buckets[bucket];
    if (use_ == SlotUse::codes) return planned.quantised();
    return use_ == SlotUse::parameters ? planned.gathered()
                                       : planned.trainable && planned.elements > 0;
}

bool SlotPlan::travels(std::size_t bucket) const {
    const Bucket &planned = plan_.buckets[bucket];
    if (!has(bucket) || !planned.gathered()) return false;
    if (use_ == SlotUse::parameters) return !planned.quantised();
    return use_ != SlotUse::gradients || !planned.sums_quantised();
}

vescomm_type_t SlotPlan::type(std::size_t bucket) const {
    const Bucket &planned = plan_.buckets[bucket];
    if (use_ == SlotUse::codes) return VESCOMM_U8;
    return use_ == SlotUse::parameters ? planned.type : planned.gradient_type;
}

Layout SlotPlan::layout(std::size_t bucket) const {
    const Bucket &planned = plan_.buckets[bucket];
    return use_ == SlotUse::gradients ? planned.layout()
                                      : Layout::from_counts(part_elements(plan_.mesh, planned));
}

vescomm_gpu_buffer_options_t SlotPlan::options(std::size_t bucket) const {
    vescomm_gpu_buffer_options_t options = vescomm_gpu_buffer_options_init();
    options.type = type(bucket);
    options.any_cuts = 1;
    return options;
}

std::uint64_t SlotPlan::bytes_of(std::size_t bucket) const {
    const Bucket &planned = plan_.buckets[bucket];
    std::uint64_t bytes =
        static_cast<std::uint64_t>(planned.elements) * vescomm_type_get_bytes(type(bucket));
    if (!travels(bucket)) return bytes;
    const vescomm_gpu_buffer_options_t chosen = options(bucket);
    check(vescomm_gpu_buffer_get_bytes(layout(bucket).get(), &chosen, &bytes));
    return bytes;
}

}  // namespace vescomm::fsdp::device
