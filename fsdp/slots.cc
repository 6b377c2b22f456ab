// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/slots.h"

#include <algorithm>
#include <cstring>

namespace vescomm::fsdp {

namespace {

std::size_t element_bytes(Precision precision) {
    return precision == Precision::f32 ? 4 : 2;
}

vescomm_type_t type_of(Precision precision) {
    return precision == Precision::f32 ? VESCOMM_F32 : VESCOMM_BF16;
}

// Returns, for each slot, the bytes of the largest unit that uses it.
std::vector<std::uint64_t> slot_sizes(const std::vector<PlannedUnit> &units, Precision precision,
                                      int slots) {
    // Slots beyond the number of units are never used.
    const std::size_t count =
        std::min(static_cast<std::size_t>(slots), std::max<std::size_t>(units.size(), 1));
    std::vector<std::uint64_t> sizes(count, 0);
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
        const auto bytes =
            static_cast<std::uint64_t>(units[unit].elements) * element_bytes(precision);
        sizes[unit % count] = std::max(sizes[unit % count], bytes);
    }
    return sizes;
}

Buffer make_buffer(Communicator &comm, const PlannedUnit &unit, const Memory &memory,
                   vescomm_sharing_t sharing, Precision precision, const std::string &name) {
    vescomm_buffer_options_t options = vescomm_buffer_options_init();
    options.type = type_of(precision);
    options.memory = memory.get();
    options.sharing = sharing;
    options.name = name.c_str();
    return Buffer(comm, unit.layout, options);
}

template <typename Pointer>
std::vector<Pointer> tensor_pointers(const Buffer &buffer, const PlannedUnit &unit) {
    std::vector<Pointer> pointers;
    for (const std::size_t index : unit.index)
        pointers.push_back(buffer.tensor<std::byte>(index).data());
    return pointers;
}

}  // namespace

ParameterSlots::ParameterSlots(Communicator &comm, const std::vector<PlannedUnit> &units,
                               const std::vector<UnitShard> &shards, Precision precision,
                               int slots) {
    for (const std::uint64_t bytes : slot_sizes(units, precision, slots)) {
        slots_.push_back({Memory(comm, bytes, VESCOMM_PER_NODE)});
        bytes_ += bytes;
    }
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
        buffers_.push_back(make_buffer(comm, units[unit], slot_of(static_cast<int>(unit)).memory,
                                       VESCOMM_PER_NODE, precision, units[unit].spec.name));
        vescomm_request_options_t options = vescomm_request_options_init();
        options.source = shards[unit].master.data();
        options.type = VESCOMM_F32;
        requests_.push_back(Request::all_gather_v(comm, buffers_.back(), options));
        pointers_.push_back(tensor_pointers<const void *>(buffers_.back(), units[unit]));
    }
}

void ParameterSlots::fetch(int unit) {
    Slot &slot = slot_of(unit);
    if (slot.unit == unit && !slot.stale) return;
    // The slot may hold a unit that was fetched ahead and never used. Its gather must complete
    // before the next one starts.
    if (slot.under_way) requests_[slot.unit].wait();
    slot.unit = unit;
    slot.stale = false;
    slot.under_way = true;
    requests_[unit].start();
}

void ParameterSlots::await(int unit) {
    Slot &slot = slot_of(unit);
    if (slot.under_way) requests_[unit].wait();
    slot.under_way = false;
}

void ParameterSlots::release(int unit) {
    Slot &slot = slot_of(unit);
    if (slot.unit != unit || slot.under_way) return;
    slot.unit = -1;
    buffers_[unit].release();
}

void ParameterSlots::invalidate() {
    for (Slot &slot : slots_) slot.stale = true;
}

GradientSlots::GradientSlots(Communicator &comm, const std::vector<PlannedUnit> &units,
                             const std::vector<UnitShard> &shards, Precision precision, int slots)
    : units_(units), element_bytes_(element_bytes(precision)) {
    for (const std::uint64_t bytes : slot_sizes(units, precision, slots)) {
        slots_.push_back({Memory(comm, bytes, VESCOMM_PER_RANK)});
        bytes_ += bytes;
    }
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
        buffers_.push_back(make_buffer(comm, units[unit], slot_of(static_cast<int>(unit)).memory,
                                       VESCOMM_PER_RANK, precision,
                                       "gradients of " + units[unit].spec.name));
        vescomm_request_options_t options = vescomm_request_options_init();
        options.output = shards[unit].gradient.data();
        options.type = VESCOMM_F32;
        requests_.push_back(Request::reduce_scatter_v(comm, buffers_.back(), options));
        pointers_.push_back(tensor_pointers<void *>(buffers_.back(), units[unit]));
    }
}

void GradientSlots::prepare(int unit) {
    finish(slot_of(unit));
    // Gaps are summed like all other elements, so they must be zero. Units that share a slot have
    // their gaps in different places.
    std::byte *data = buffers_[unit].data<std::byte>().data();
    for (const auto &[begin, end] : units_[unit].gaps)
        std::memset(data + static_cast<std::size_t>(begin) * element_bytes_, 0,
                    static_cast<std::size_t>(end - begin) * element_bytes_);
}

void GradientSlots::send(int unit) {
    slot_of(unit).sending = unit;
    requests_[unit].start();
}

void GradientSlots::finish(Slot &slot) {
    if (slot.sending >= 0) requests_[slot.sending].wait();
    slot.sending = -1;
}

void GradientSlots::finish() {
    for (Slot &slot : slots_) finish(slot);
}

}  // namespace vescomm::fsdp
