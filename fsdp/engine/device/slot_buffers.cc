// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/slot_buffers.h"

#include "fsdp/engine/or_abort.h"

namespace vescomm::fsdp::device {

namespace {

// Throws the error of a sum that no method can make, such as a reproducible one.
void require_sums(const Link &link, vescomm_gpu_buffer_t *buffer) {
    const char *text = nullptr;
    link.require(vescomm_gpu_buffer_explain(buffer, 1, &text));
}

}  // namespace

SlotBuffers::SlotBuffers(const ModelPlan &plan, int position, SlotUse use,
                         std::span<const std::string> unit_names, Links &links)
    : plan_(plan), position_(position), places_(plan, use) {
    // As in Links: the end of buffers and memory is a call that other ranks compare.
    or_abort(links.comms(), [&] { make(unit_names, links); });
}

void SlotBuffers::make(std::span<const std::string> unit_names, Links &links) {
    for (std::size_t slot = 0; slot < places_.sizes().size(); ++slot)
        slots_.emplace_back(link(links, places_.kind(slot)), places_.sizes()[slot]);
    for (std::size_t unit = 0; unit < plan_.of_unit.size(); ++unit)
        for (const int slot : places_.slots_of(unit)) {
            std::vector<vescomm_gpu_buffer_t *> &list = lists_[{slot, unit}];
            const Link &creator = link(links, plan_.kinds[unit]);
            for (const std::size_t bucket : plan_.of_unit[unit]) {
                if (!travels(bucket)) continue;
                vescomm_gpu_buffer_options_t chosen = places_.options(bucket);
                chosen.name = unit_names[unit].c_str();
                chosen.memory = slots_[slot].data();
                chosen.offset_bytes = places_.offset(bucket);
                vescomm_gpu_buffer_t *made = nullptr;
                creator.require(vescomm_gpu_buffer_create(
                    creator.get(), places_.layout(bucket).get(), &chosen, &made));
                buffers_.emplace_back(made);
                if (places_.use() == SlotUse::gradients) require_sums(creator, made);
                list.push_back(made);
            }
        }
}

Link &SlotBuffers::link(Links &links, UnitKind kind) const {
    return places_.use() == SlotUse::gradients ? links.shard(kind) : links.gather(kind);
}

std::span<vescomm_gpu_buffer_t *const> SlotBuffers::of(int slot, std::size_t unit) const {
    const auto found = lists_.find({slot, unit});
    if (found == lists_.end()) return {};
    return found->second;
}

std::byte *SlotBuffers::shard(int slot, std::size_t bucket) const {
    const Bucket &planned = plan_.buckets[bucket];
    if (places_.use() == SlotUse::codes)
        return data(slot, bucket) + planned.codes.cuts[planned.shard_number(position_)];
    return data(slot, bucket) + static_cast<std::size_t>(planned.begin(position_)) *
                                    vescomm_type_get_bytes(type(bucket));
}

}  // namespace vescomm::fsdp::device
