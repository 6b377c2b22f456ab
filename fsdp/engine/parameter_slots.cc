// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/parameter_slots.h"

namespace vescomm::fsdp {

ParameterSlots::ParameterSlots(const ModelPlan &plan, const Shards &shards,
                               std::span<const std::string> unit_names, Comms &comms, Watch &watch)
    : plan_(plan),
      shards_(shards),
      unit_names_(unit_names),
      comms_(comms),
      watch_(watch),
      offsets_(plan.buckets.size(), 0),
      slots_(plan.slots.size()) {
    for (const std::vector<std::size_t> &buckets : plan.of_unit) {
        std::uint64_t offset = 0;
        for (const std::size_t bucket : buckets) {
            offsets_[bucket] = offset;
            offset += align_bucket(plan.buckets[bucket].parameter_bytes());
        }
    }
    for (std::size_t slot = 0; slot < slots_.size(); ++slot)
        if (plan.slots[slot] > 0)
            slots_[slot].memory = Memory(comms.shard(), plan.slots[slot], VESCOMM_PER_NODE);
}

ParameterSlots::Channel &ParameterSlots::channel(int slot, std::size_t bucket) {
    const auto found = channels_.find({slot, bucket});
    if (found != channels_.end()) return found->second;
    const Bucket &planned = plan_.buckets[bucket];
    vescomm_buffer_options_t options = vescomm_buffer_options_init();
    options.type = planned.type;
    options.memory = slots_[slot].memory.get();
    options.offset_bytes = offsets_[bucket];
    options.sharing = VESCOMM_PER_NODE;
    options.name = unit_names_[planned.unit].c_str();
    Channel made;
    made.buffer = Buffer(comms_.shard(), planned.layout(), options);
    vescomm_request_options_t request = vescomm_request_options_init();
    request.source = shards_.master(bucket).data();
    request.type = VESCOMM_F32;
    made.request = Request::all_gather_v(comms_.shard(), made.buffer, request);
    return channels_.emplace(std::pair(slot, bucket), std::move(made)).first->second;
}

void ParameterSlots::gather(int unit, int slot, const Announcement &announcement) {
    Slot &into = slots_[slot];
    await(slot);
    into.unit = unit;
    into.announced = watch_.post(announcement);
    into.running = true;
    for (const std::size_t bucket : plan_.of_unit[unit]) {
        if (plan_.buckets[bucket].elements == 0) continue;
        shards_.will_need_master(bucket);
        // A request is created on all ranks of a group. Ranks that do not come to this unit must
        // be found before.
        if (!channels_.contains({slot, bucket})) watch_.verify(into.announced);
        channel(slot, bucket).request.start();
    }
}

void ParameterSlots::await(int slot) {
    Slot &from = slots_[slot];
    if (!from.running) return;
    watch_.verify(from.announced);
    for (const std::size_t bucket : plan_.of_unit[from.unit])
        if (plan_.buckets[bucket].elements > 0) {
            comms_.wait(comms_.shard(), channel(slot, bucket).request.get());
            shards_.rest_master(bucket);
        }
    from.running = false;
}

void ParameterSlots::release(int slot) {
    Slot &from = slots_[slot];
    if (from.unit < 0 || from.running) return;
    for (const std::size_t bucket : plan_.of_unit[from.unit]) {
        if (plan_.buckets[bucket].elements == 0) continue;
        channel(slot, bucket).buffer.release();
        return;  // it applies to the memory, and so to all buckets
    }
}

void *ParameterSlots::data(int slot, std::size_t bucket) const {
    const Memory &memory = slots_[slot].memory;
    if (memory.get() == nullptr) return nullptr;
    return static_cast<std::byte *>(memory.data()) + offsets_[bucket];
}

void ParameterSlots::await_all() {
    for (int slot = 0; slot < static_cast<int>(slots_.size()); ++slot) await(slot);
}

std::uint64_t ParameterSlots::bytes() const {
    std::uint64_t bytes = 0;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot)
        if (slots_[slot].memory.get() != nullptr) bytes += plan_.slots[slot];
    return bytes;
}

}  // namespace vescomm::fsdp
