// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/parameter_slots.h"

#include <algorithm>

#include "execute/kernels.h"
#include "fsdp/report/traffic.h"
#include "fsdp/spec/gather_parts.h"

namespace vescomm::fsdp {

ParameterSlots::ParameterSlots(const ModelPlan &plan, const Shards &shards,
                               std::span<const std::string> unit_names, Comms &comms, Watch &watch,
                               EventTimes &times)
    : plan_(plan),
      shards_(shards),
      unit_names_(unit_names),
      comms_(comms),
      watch_(watch),
      offsets_(plan.buckets.size(), 0),
      slots_(plan.slots.size()),
      transfers_(Transfer::gather, plan.slots.size(), comms, times),
      copies_(plan, shards, comms),
      codes_(plan, shards, copies_, unit_names, comms),
      replicated_(plan, shards, false) {
    for (const std::vector<std::size_t> &buckets : plan.of_unit) {
        std::uint64_t plain = 0;
        std::uint64_t quantised = 0;
        for (const std::size_t bucket : buckets) {
            if (plan.buckets[bucket].replicated) continue;
            std::uint64_t &offset = plan.buckets[bucket].quantised() ? quantised : plain;
            offsets_[bucket] = offset;
            offset += align_bucket(plan.buckets[bucket].parameter_bytes());
        }
    }
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
        const Communicator &comm = comms.gather(plan.kind_of_slot(slot));
        if (plan.slots[slot] > 0)
            slots_[slot].memory = Memory(comm, plan.slots[slot], VESCOMM_PER_NODE);
        if (plan.quantised_slots[slot] > 0)
            slots_[slot].quantised = Memory(comm, plan.quantised_slots[slot], VESCOMM_PER_NODE);
    }
    // Another rank may wait for a gather in the queue before it comes to what this rank waits for.
    if (copies_.exist())
        comms.set_work([this] {
            advance();
            return !queue_.empty();
        });
}

// Other ranks may have started the gathers in the queue, and wait for this rank.
ParameterSlots::~ParameterSlots() {
    try {
        if (!queue_.empty()) start_until(queue_.back());
    } catch (const std::exception &) {
        // The communicators are broken.
    }
    comms_.set_work({});
}

template <typename Body>
void ParameterSlots::for_plain_buckets(int unit, Body &&body) const {
    for (const std::size_t bucket : plan_.of_unit[unit])
        if (plan_.buckets[bucket].gathered() && !plan_.buckets[bucket].quantised()) body(bucket);
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
    Communicator &comm = comms_.gather(planned.kind());
    Channel made;
    made.buffer = Buffer(comm, Layout::from_counts(part_elements(plan_.mesh, planned)), options);
    vescomm_request_options_t request = vescomm_request_options_init();
    request.source = shards_.master(bucket).data;
    request.type = planned.master_type;
    if (copies_.exist()) {
        request.source = copies_.part(bucket);
        request.type = planned.type;
    }
    made.request = Request::all_gather_v(comm, made.buffer, request);
    return channels_.emplace(std::pair(slot, bucket), std::move(made)).first->second;
}

// Ranks that do not come to this unit must be found before. Ranks create and start requests in the
// same order, so gathers in the queue start first.
void ParameterSlots::create_requests(int unit, int slot) {
    const int codes = plan_.quantised_bytes_of(unit) > 0 ? codes_.slot_for(slot) : 0;
    bool creates = copies_.lack(unit) && copies_.creates(unit, slot);
    for (const std::size_t bucket : plan_.of_unit[unit]) {
        if (!plan_.buckets[bucket].gathered()) continue;
        creates =
            creates || (plan_.buckets[bucket].quantised() ? codes_.creates(codes, bucket)
                                                          : !channels_.contains({slot, bucket}));
    }
    if (!creates) return;
    watch_.verify(slots_[slot].announced);
    while (!queue_.empty()) start_until(queue_.back());
    comms_.complete_others(comms_.gather(plan_.kinds[unit]));
    for (const std::size_t bucket : plan_.of_unit[unit]) {
        if (!plan_.buckets[bucket].gathered()) continue;
        if (plan_.buckets[bucket].quantised()) codes_.create(codes, bucket);
        else channel(slot, bucket);
    }
}

bool ParameterSlots::gather(int unit, int slot, const Announcement &announcement) {
    Slot &into = slots_[slot];
    await(slot);
    // Unit slots share code slots.
    if (plan_.quantised_bytes_of(unit) > 0)
        for (int other = 0; other < static_cast<int>(slots_.size()); ++other)
            if (codes_.slot_for(other) == codes_.slot_for(slot)) await(other);
    into.unit = unit;
    const bool fills = copies_.lack(unit);
    const auto number = static_cast<std::size_t>(unit);
    const int position = plan_.mesh.position(comms_.world().rank());
    transfers_.begin(
        slot,
        gather_bytes(plan_, number, position) + (fills ? fill_bytes(plan_, number, position) : 0),
        number);
    const auto waits = transfers_.waits(slot);
    into.announced = watch_.post(announcement);
    into.running = true;
    if (fills || !copies_.exist())
        for (const std::size_t bucket : plan_.of_unit[unit])
            if (plan_.buckets[bucket].gathered()) shards_.will_need_master(bucket);
    replicated_.convert(unit, [&](std::byte *to, vescomm_type_t type, std::size_t bucket) {
        const Masters masters = shards_.master(bucket);
        internal::kernels().convert(to, type, masters.data, masters.type, masters.size);
    });
    create_requests(unit, slot);
    if (fills) copies_.fill(unit, slot);
    queue_.push_back(slot);
    advance();
    return fills;
}

void ParameterSlots::start_next() {
    const int slot = queue_.front();
    const int unit = slots_[slot].unit;
    for_plain_buckets(unit, [&](std::size_t bucket) {
        Request &request = channel(slot, bucket).request;
        request.start();
        comms_.started(comms_.gather(plan_.kinds[unit]), request.get());
    });
    for (const std::size_t bucket : plan_.of_unit[unit])
        if (plan_.buckets[bucket].quantised()) codes_.start(codes_.slot_for(slot), bucket);
    queue_.pop_front();
}

void ParameterSlots::advance() {
    while (!queue_.empty() && copies_.filled(slots_[queue_.front()].unit)) start_next();
}

void ParameterSlots::start_until(int slot) {
    while (std::ranges::find(queue_, slot) != queue_.end()) {
        copies_.await(slots_[queue_.front()].unit);
        advance();
    }
}

void ParameterSlots::await(int slot) {
    Slot &from = slots_[slot];
    if (!from.running) return;
    const auto waits = transfers_.waits(slot);
    // All ranks have begun this gather, so no rank reads the unit that was in the slot before.
    watch_.verify(from.announced);
    start_until(slot);
    for_plain_buckets(from.unit, [&](std::size_t bucket) {
        comms_.wait(comms_.gather(plan_.kinds[from.unit]), channel(slot, bucket).request.get());
    });
    if (plan_.quantised_bytes_of(from.unit) > 0)
        codes_.finish(codes_.slot_for(slot), from.unit,
                      [&](std::size_t bucket) { return data(slot, bucket); });
    for (const std::size_t bucket : plan_.of_unit[from.unit])
        if (plan_.buckets[bucket].gathered()) shards_.rest_master(bucket);
    from.running = false;
    transfers_.end(slot);
}

void ParameterSlots::release(int slot) {
    Slot &from = slots_[slot];
    if (from.unit < 0 || from.running) return;
    for (const std::size_t bucket : plan_.of_unit[from.unit]) {
        if (!plan_.buckets[bucket].gathered() || plan_.buckets[bucket].quantised()) continue;
        channel(slot, bucket).buffer.release();
        return;  // it applies to the memory, and so to all buckets
    }
}

void *ParameterSlots::data(int slot, std::size_t bucket) const {
    if (plan_.buckets[bucket].replicated) return replicated_.data(bucket);
    const Slot &in = slots_[slot];
    const Memory &memory = plan_.buckets[bucket].quantised() ? in.quantised : in.memory;
    if (memory.get() == nullptr) return nullptr;
    return static_cast<std::byte *>(memory.data()) + offsets_[bucket];
}

void ParameterSlots::forget_copies() {
    copies_.forget();
    replicated_.forget();
}

void ParameterSlots::await_all() {
    for (int slot = 0; slot < static_cast<int>(slots_.size()); ++slot) await(slot);
}

std::uint64_t ParameterSlots::bytes() const {
    std::uint64_t bytes = 0;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
        if (slots_[slot].memory.get() != nullptr) bytes += plan_.slots[slot];
        if (slots_[slot].quantised.get() != nullptr) bytes += plan_.quantised_slots[slot];
    }
    return bytes + copies_.bytes() + codes_.bytes() + replicated_.bytes();
}

}  // namespace vescomm::fsdp
