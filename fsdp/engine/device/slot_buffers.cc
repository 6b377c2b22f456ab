// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/slot_buffers.h"

#include <algorithm>

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

SlotBuffers::SlotBuffers(const ModelPlan &plan, int position, SlotUse use,
                         std::span<const std::string> unit_names, Links &links)
    : plan_(plan), position_(position), use_(use), offsets_(plan.buckets.size(), 0) {
    sizes_.assign(slot_count(plan, use), 0);
    const std::vector<UnitKind> kinds = measure(unit_names);
    for (std::size_t slot = 0; slot < sizes_.size(); ++slot)
        slots_.emplace_back(link(links, kinds[slot]), sizes_[slot]);
    for (std::size_t unit = 0; unit < plan.of_unit.size(); ++unit)
        for (const int slot : slots_of(unit)) {
            std::vector<vescomm_gpu_buffer_t *> &list = lists_[{slot, unit}];
            for (const std::size_t bucket : plan.of_unit[unit]) {
                if (!travels(bucket)) continue;
                vescomm_gpu_buffer_options_t chosen = options(bucket, unit_names);
                chosen.memory = slots_[slot].data();
                chosen.offset_bytes = offsets_[bucket];
                vescomm_gpu_buffer_t *made = nullptr;
                check(vescomm_gpu_buffer_create(link(links, plan.kinds[unit]).get(),
                                                layout(bucket).get(), &chosen, &made));
                buffers_.emplace_back(made);
                list.push_back(made);
            }
        }
}

std::vector<UnitKind> SlotBuffers::measure(std::span<const std::string> unit_names) {
    // Dense units and experts have slots of their own.
    std::vector<UnitKind> kinds(sizes_.size(), UnitKind::dense);
    for (std::size_t unit = 0; unit < plan_.of_unit.size(); ++unit) {
        std::uint64_t end = 0;
        for (const std::size_t bucket : plan_.of_unit[unit]) {
            if (!has(bucket)) continue;
            std::uint64_t bytes = plan_.buckets[bucket].parameter_bytes();
            if (travels(bucket)) {
                const vescomm_gpu_buffer_options_t chosen = options(bucket, unit_names);
                check(vescomm_gpu_buffer_get_bytes(layout(bucket).get(), &chosen, &bytes));
            }
            offsets_[bucket] = end;
            end += align(bytes);
        }
        for (const int slot : slots_of(unit)) {
            sizes_[slot] = std::max(sizes_[slot], end);
            kinds[slot] = plan_.kinds[unit];
        }
    }
    return kinds;
}

vescomm_gpu_buffer_options_t SlotBuffers::options(std::size_t bucket,
                                                  std::span<const std::string> unit_names) const {
    vescomm_gpu_buffer_options_t options = vescomm_gpu_buffer_options_init();
    options.type = type(bucket);
    options.any_cuts = 1;
    options.name = unit_names[plan_.buckets[bucket].unit].c_str();
    return options;
}

Layout SlotBuffers::layout(std::size_t bucket) const {
    const Bucket &planned = plan_.buckets[bucket];
    return use_ == SlotUse::gradients ? planned.layout()
                                      : Layout::from_counts(part_elements(plan_.mesh, planned));
}

std::vector<int> SlotBuffers::slots_of(std::size_t unit) const {
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

Link &SlotBuffers::link(Links &links, UnitKind kind) const {
    return use_ == SlotUse::gradients ? links.shard(kind) : links.gather(kind);
}

std::span<vescomm_gpu_buffer_t *const> SlotBuffers::of(int slot, std::size_t unit) const {
    const auto found = lists_.find({slot, unit});
    if (found == lists_.end()) return {};
    return found->second;
}

bool SlotBuffers::has(std::size_t bucket) const {
    const Bucket &planned = plan_.buckets[bucket];
    if (use_ == SlotUse::codes) return planned.quantised();
    return planned.elements > 0 && (use_ == SlotUse::parameters || planned.trainable);
}

bool SlotBuffers::travels(std::size_t bucket) const {
    return has(bucket) && (use_ != SlotUse::parameters || !plan_.buckets[bucket].quantised());
}

vescomm_type_t SlotBuffers::type(std::size_t bucket) const {
    const Bucket &planned = plan_.buckets[bucket];
    if (use_ == SlotUse::codes) return VESCOMM_U8;
    return use_ == SlotUse::parameters ? planned.type : planned.gradient_type;
}

std::byte *SlotBuffers::shard(int slot, std::size_t bucket) const {
    const Bucket &planned = plan_.buckets[bucket];
    if (use_ == SlotUse::codes)
        return data(slot, bucket) + planned.codes.cuts[planned.shard_number(position_)];
    return data(slot, bucket) + static_cast<std::size_t>(planned.begin(position_)) *
                                    vescomm_type_get_bytes(type(bucket));
}

std::uint64_t SlotBuffers::bytes() const {
    std::uint64_t all = 0;
    for (const std::uint64_t bytes : sizes_) all += bytes;
    return all;
}

}  // namespace vescomm::fsdp::device
