// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/slot_buffers.h"

namespace vescomm::fsdp::device {

namespace {

constexpr std::uint64_t alignment = 256;  // of device buffers within memory

std::uint64_t align(std::uint64_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

SlotBuffers::SlotBuffers(const ModelPlan &plan, int position, SlotUse use,
                         std::span<const std::string> unit_names, Links &links)
    : plan_(plan), position_(position), use_(use), offsets_(plan.buckets.size(), 0) {
    const bool gathers = use == SlotUse::parameters;
    const auto &ranges = gathers ? plan.slot_ranges : plan.gradient_slot_ranges;
    const std::size_t slots = gathers ? plan.slots.size() : plan.gradient_slots.size();
    const auto options_of = [&](std::size_t bucket) {
        vescomm_gpu_buffer_options_t options = vescomm_gpu_buffer_options_init();
        options.type = type(bucket);
        options.any_cuts = 1;
        options.name = unit_names[plan.buckets[bucket].unit].c_str();
        return options;
    };
    sizes_.assign(slots, 0);
    // Dense units and experts have slots of their own.
    std::vector<UnitKind> kinds(slots, UnitKind::dense);
    for (std::size_t unit = 0; unit < plan.of_unit.size(); ++unit) {
        std::uint64_t end = 0;
        for (const std::size_t bucket : plan.of_unit[unit]) {
            if (!has(bucket)) continue;
            const Layout layout = plan.buckets[bucket].layout();
            const vescomm_gpu_buffer_options_t options = options_of(bucket);
            std::uint64_t bytes = 0;
            check(vescomm_gpu_buffer_get_bytes(layout.get(), &options, &bytes));
            offsets_[bucket] = end;
            end += align(bytes);
        }
        for (int slot = ranges[unit].begin; slot < ranges[unit].end; ++slot) {
            sizes_[slot] = std::max(sizes_[slot], end);
            kinds[slot] = plan.kinds[unit];
        }
    }
    for (std::size_t slot = 0; slot < slots; ++slot)
        slots_.emplace_back(links.shard(kinds[slot]), sizes_[slot]);
    for (std::size_t unit = 0; unit < plan.of_unit.size(); ++unit)
        for (int slot = ranges[unit].begin; slot < ranges[unit].end; ++slot) {
            std::vector<vescomm_gpu_buffer_t *> &list = lists_[{slot, unit}];
            for (const std::size_t bucket : plan.of_unit[unit]) {
                if (!has(bucket)) continue;
                vescomm_gpu_buffer_options_t options = options_of(bucket);
                options.memory = slots_[slot].data();
                options.offset_bytes = offsets_[bucket];
                const Layout layout = plan.buckets[bucket].layout();
                vescomm_gpu_buffer_t *made = nullptr;
                check(vescomm_gpu_buffer_create(links.shard(plan.kinds[unit]).get(), layout.get(),
                                                &options, &made));
                buffers_.emplace_back(made);
                list.push_back(made);
            }
        }
}

bool SlotBuffers::has(std::size_t bucket) const {
    const Bucket &planned = plan_.buckets[bucket];
    return planned.elements > 0 && (use_ == SlotUse::parameters || planned.trainable);
}

vescomm_type_t SlotBuffers::type(std::size_t bucket) const {
    const Bucket &planned = plan_.buckets[bucket];
    return use_ == SlotUse::parameters ? planned.type : planned.gradient_type;
}

std::byte *SlotBuffers::shard(int slot, std::size_t bucket) const {
    return data(slot, bucket) + static_cast<std::size_t>(plan_.buckets[bucket].begin(position_)) *
                                    vescomm_type_get_bytes(type(bucket));
}

std::uint64_t SlotBuffers::bytes() const {
    std::uint64_t all = 0;
    for (const std::uint64_t bytes : sizes_) all += bytes;
    return all;
}

}  // namespace vescomm::fsdp::device
