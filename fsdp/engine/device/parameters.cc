// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/parameters.h"

#include <algorithm>

#include "fsdp/report/traffic.h"
#include "vescomm/gpu_kernels.h"

namespace vescomm::fsdp::device {

Parameters::Parameters(const ModelPlan &plan, const Shards &shards, int position,
                       std::uint64_t staged_bytes, std::span<const std::string> unit_names,
                       Watch &watch, Links &links, Streams &streams, const Transfers &transfers)
    : plan_(plan),
      shards_(shards),
      position_(position),
      watch_(watch),
      links_(links),
      streams_(streams),
      copies_(plan, position),
      replicated_(plan, shards, true),
      masters_(shards, staged_bytes, links),
      slots_(plan.slots.size()),
      buffers_(plan, position, SlotUse::parameters, unit_names, links),
      codes_(plan, position, unit_names, links),
      transfers_(transfers) {}

bool Parameters::gather(int unit, int slot, const Announcement &announcement) {
    const auto number = static_cast<std::size_t>(unit);
    const bool fills = copies_.lack(unit);
    transfers_.begin(
        slot,
        gather_bytes(plan_, number, position_) + (fills ? fill_bytes(plan_, number, position_) : 0),
        number);
    const auto waits = transfers_.waits(slot);
    start(unit, slot, fills || !copies_.exist(), announcement);
    transfers_.end(slot);
    return fills;
}

template <typename Body>
void Parameters::for_travelling(int unit, int slot, Body &&body) const {
    for (const std::size_t bucket : plan_.of_unit[unit]) {
        if (buffers_.travels(bucket)) body(bucket, buffers_, slot);
        if (codes_.buffers().travels(bucket)) body(bucket, codes_.buffers(), codes_.slot_for(slot));
    }
}

bool Parameters::gathers(int unit) const {
    return std::ranges::any_of(plan_.of_unit[unit],
                               [&](std::size_t bucket) { return buffers_.has(bucket); });
}

bool Parameters::replicates(int unit) const {
    return std::ranges::any_of(
        plan_.of_unit[unit], [&](std::size_t bucket) { return plan_.buckets[bucket].replicated; });
}

void Parameters::start(int unit, int slot, bool whole, const Announcement &announcement) {
    Slot &into = slots_[slot];
    into.unit = unit;
    into.running = true;
    const std::uint64_t announced = watch_.post(announcement);
    watch_.look();
    const bool sharded = gathers(unit);
    const bool replicated = replicates(unit);
    if (!sharded && !replicated) return;
    if (replicated) convert_replicated(unit);
    if (sharded) gather_sharded(unit, slot, whole, announced);
    into.gathered.record(streams_.gather());
}

void Parameters::convert_replicated(int unit) {
    streams_.gather_after_writes();
    replicated_.convert(unit, [&](std::byte *to, vescomm_type_t type, std::size_t bucket) {
        copy_masters(bucket, to, type);
    });
}

void Parameters::gather_sharded(int unit, int slot, bool whole, std::uint64_t announced) {
    // NCCL waits for other ranks at its first call. Those that make another one are found before.
    const UnitKind kind = plan_.kinds[unit];
    const Link *link = whole ? &links_.shard(kind) : &links_.gather(kind);
    if (std::ranges::find(connected_, link) == connected_.end()) {
        watch_.verify(announced);
        connected_.push_back(link);
    }
    slots_[slot].closed.wait_on(streams_.gather());
    if (whole) put_masters(unit, slot);
    if (whole && copies_.exist()) gather_masters(unit, slot);
    else gather_parts(unit, slot);
    write_parameters(unit, slot);
}

void Parameters::put_masters(int unit, int slot) {
    const cuda::Stream stream = streams_.gather();
    streams_.gather_after_writes();
    for_travelling(unit, slot, [&](std::size_t bucket, const SlotBuffers &buffers, int of_buffers) {
        if (shards_.master(bucket).size == 0) return;
        if (&buffers == &buffers_)
            return copy_masters(bucket, buffers.shard(of_buffers, bucket), buffers.type(bucket));
        masters_.read(bucket, stream, [&](const Masters &masters) {
            codes_.quantise(of_buffers, bucket, masters, stream);
        });
    });
}

void Parameters::copy_masters(std::size_t bucket, std::byte *to, vescomm_type_t type) {
    const cuda::Stream stream = streams_.gather();
    masters_.read(bucket, stream, [&](const Masters &masters) {
        const vescomm_gpu_piece_t all = {0, 0, static_cast<std::int64_t>(masters.size)};
        check(vescomm_gpu_copy(to, type, masters.data, masters.type, &all, 1, stream));
    });
}

// The slots are registered for gathers within the group.
void Parameters::gather_masters(int unit, int slot) {
    const cuda::Stream stream = streams_.gather();
    links_.shard().call(stream, [&](vescomm_gpu_comm_t *comm) {
        vescomm_status_t status = VESCOMM_OK;
        for_travelling(
            unit, slot, [&](std::size_t bucket, const SlotBuffers &buffers, int of_buffers) {
                if (status != VESCOMM_OK) return;
                status = vescomm_gpu_all_gather_v(comm, copies_.whole(bucket).get(),
                                                  buffers.type(bucket), nullptr,
                                                  buffers.data(of_buffers, bucket), stream);
            });
        return status;
    });
    for_travelling(unit, slot, [&](std::size_t bucket, const SlotBuffers &buffers, int of_buffers) {
        copies_.keep(bucket, buffers.data(of_buffers, bucket), buffers.type(bucket), stream);
    });
    copies_.set_kept(unit);
}

void Parameters::gather_parts(int unit, int slot) {
    const cuda::Stream stream = streams_.gather();
    if (copies_.exist())
        for_travelling(unit, slot,
                       [&](std::size_t bucket, const SlotBuffers &buffers, int of_buffers) {
                           copies_.restore(bucket, buffers.data(of_buffers, bucket),
                                           buffers.type(bucket), stream);
                       });
    const auto number = static_cast<std::size_t>(unit);
    const auto plain = buffers_.of(slot, number);
    group_.assign(plain.begin(), plain.end());
    for (vescomm_gpu_buffer_t *of_codes : codes_.buffers().of(codes_.slot_for(slot), number))
        group_.push_back(of_codes);
    links_.gather(plan_.kinds[unit]).call(stream, [&](vescomm_gpu_comm_t *) {
        return vescomm_gpu_buffer_all_gather_v(group_.data(), group_.size(), stream);
    });
}

void Parameters::write_parameters(int unit, int slot) {
    for_travelling(unit, slot, [&](std::size_t bucket, const SlotBuffers &buffers, int of_buffers) {
        if (&buffers != &buffers_)
            codes_.dequantise(of_buffers, bucket, buffers_.data(slot, bucket), streams_.gather());
    });
}

void Parameters::await(int slot) {
    Slot &from = slots_[slot];
    if (from.unit < 0 || (!from.running && from.awaited == streams_.uses())) return;
    from.gathered.wait_on(streams_.compute());
    from.awaited = streams_.uses();
    from.running = false;
}

void Parameters::await_all() {
    if (!shards_.on_device()) return links_.settle(streams_);
    streams_.order(streams_.gather(), streams_.reduce());
}

void Parameters::forget_copies() {
    copies_.forget();
    replicated_.forget();
    if (!plan_.replicates()) return;
    // Uses of replicated parameters end before masters and their copies change.
    for (const Slot &slot : slots_)
        for (const cuda::Stream stream : {streams_.gather(), streams_.reduce()})
            slot.closed.wait_on(stream);
}

void Parameters::closed(int slot) {
    Event &closed = slots_[slot].closed;
    closed.wait_on(streams_.compute());
    closed.record(streams_.compute());
}

void *Parameters::data(int slot, std::size_t bucket) const {
    if (plan_.buckets[bucket].replicated) return replicated_.data(bucket);
    return buffers_.has(bucket) ? buffers_.data(slot, bucket) : nullptr;
}

}  // namespace vescomm::fsdp::device
