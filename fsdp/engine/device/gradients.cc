// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/gradients.h"

#include <algorithm>

#include "fsdp/error.h"
#include "fsdp/report/traffic.h"
#include "vescomm/gpu_kernels.h"

namespace vescomm::fsdp::device {

namespace {

vescomm_gpu_piece_t whole(std::size_t elements) {
    return {0, 0, static_cast<std::int64_t>(elements)};
}

}  // namespace

Gradients::Gradients(const Model &model, const Shards &shards, int position, Watch &watch,
                     Links &links, Streams &streams, const Transfers &transfers)
    : model_(model),
      position_(position),
      shards_(shards),
      watch_(watch),
      links_(links),
      streams_(streams),
      factors_(model.spec, model.plan),
      units_(model),
      scratch_(gradient_scratch_bytes(model.spec, model.plan, factors_, position), Place::device,
               model.plan.device_allocator),
      quantised_(model.spec, model.plan, shards, position),
      events_(model.plan.gradient_slots.size()),
      buffers_(model.plan, position, SlotUse::gradients, model.unit_names, links),
      replica_sums_(model.spec, model.plan, shards, scratch_, links, streams),
      transfers_(transfers) {}

template <typename Body>
void Gradients::write(int slot, Body &&body) {
    events_[slot].written.wait_on(streams_.compute());
    body(streams_.compute());
    events_[slot].written.record(streams_.compute());
}

void Gradients::acquire(int unit) {
    // The events of one unit may be on several streams.
    if (units_.is_open(unit))
        return events_[units_.slot_of(unit)].written.wait_on(streams_.compute());
    const int slot = units_.open(unit);
    write(slot, [&](cuda::Stream stream) { events_[slot].drained.wait_on(stream); });
}

void *Gradients::data(std::size_t parameter) const {
    const int slot = units_.slot_for(parameter);
    const std::size_t bucket = model_.plan.parameter_places[parameter]->bucket;
    if (slot == SlotPool::none || !buffers_.has(bucket)) return nullptr;
    return buffers_.data(slot, bucket) + units_.offset_of(parameter);
}

vescomm_fsdp_gradient_mode_t Gradients::begin_write(std::size_t parameter) {
    const Parameter &one = model_.spec.parameters()[parameter];
    const GradientWrites::Begin begin = units_.writes().begin_write(parameter);
    if (begin.zeros && one.elements > 0) {
        const vescomm_gpu_piece_t all = whole(static_cast<std::size_t>(one.elements));
        write(units_.slot_for(parameter), [&](cuda::Stream stream) {
            check(
                vescomm_gpu_zero(data(parameter), model_.spec.gradient_type(one), &all, 1, stream));
        });
    }
    return begin.mode;
}

void Gradients::push(std::size_t parameter, const void *from, vescomm_type_t type) {
    const Parameter &one = model_.spec.parameters()[parameter];
    const vescomm_type_t to_type = model_.spec.gradient_type(one);
    require_gradient_type(type, to_type);
    if (one.elements > 0) {
        const vescomm_gpu_piece_t all = whole(static_cast<std::size_t>(one.elements));
        const auto call = units_.writes().written(parameter) ? vescomm_gpu_add : vescomm_gpu_copy;
        write(units_.slot_for(parameter), [&](cuda::Stream stream) {
            check(call(data(parameter), to_type, from, type, &all, 1, stream));
        });
    }
    units_.writes().set_written(parameter);
}

void Gradients::fill_with_zeros(int unit, int slot) {
    std::vector<vescomm_gpu_piece_t> pieces;
    for (const std::size_t bucket : model_.plan.of_unit[unit]) {
        if (!buffers_.has(bucket)) continue;
        pieces.clear();
        units_.writes().for_gaps(model_.plan.buckets[bucket],
                                 [&](std::int64_t begin, std::int64_t end) {
                                     pieces.push_back({begin, 0, end - begin});
                                 });
        if (pieces.empty()) continue;
        write(slot, [&](cuda::Stream stream) {
            check(vescomm_gpu_zero(buffers_.data(slot, bucket), buffers_.type(bucket),
                                   pieces.data(), static_cast<std::int64_t>(pieces.size()),
                                   stream));
        });
    }
}

// The next stream that writes them, and their sum, wait for the writes on this one.
void Gradients::end_writes(int unit) {
    if (units_.is_open(unit)) write(units_.slot_of(unit), [](cuda::Stream) {});
}

void Gradients::send(int unit, const Announcement &announcement) {
    const int slot = units_.slot_of(unit);
    fill_with_zeros(unit, slot);
    const bool adds = units_.close(unit);
    transfers_.begin(slot, reduce_bytes(model_.plan, static_cast<std::size_t>(unit), position_),
                     static_cast<std::size_t>(unit));
    const auto waits = transfers_.waits(slot);
    start(unit, slot, adds, announcement);
    transfers_.end(slot);
}

void Gradients::start(int unit, int slot, bool adds, const Announcement &announcement) {
    sending_ = true;
    const std::uint64_t announced = watch_.post(announcement);
    watch_.look();
    if (std::ranges::none_of(model_.plan.of_unit[unit],
                             [&](std::size_t bucket) { return buffers_.has(bucket); }))
        return;
    const cuda::Stream stream = streams_.reduce();
    events_[slot].written.wait_on(stream);
    sum(unit, slot, announced);
    take_sum(unit, slot, adds);
    events_[slot].drained.record(stream);
}

void Gradients::sum(int unit, int slot, std::uint64_t announced) {
    const auto buffers = buffers_.of(slot, static_cast<std::size_t>(unit));
    if (buffers.empty() && !quantised_.any(unit)) return;
    const UnitKind kind = model_.plan.kinds[unit];
    Connected &connected = connected_[static_cast<int>(kind)];
    // NCCL waits for other ranks at its first call, and at the first sends and receives.
    if ((!buffers.empty() && !connected.sums) || (quantised_.any(unit) && !connected.exchanges))
        watch_.verify(announced);
    connected.sums = connected.sums || !buffers.empty();
    connected.exchanges = connected.exchanges || quantised_.any(unit);
    divide(unit, slot);
    const cuda::Stream stream = streams_.reduce();
    Link &link = links_.shard(kind);
    if (!buffers.empty())
        link.call(stream, [&](vescomm_gpu_comm_t *) {
            return vescomm_gpu_buffer_reduce_scatter_v(buffers.data(), buffers.size(), VESCOMM_SUM,
                                                       stream);
        });
    if (quantised_.any(unit)) quantised_.send(unit, slot, buffers_, link, stream);
}

void Gradients::divide(int unit, int slot) {
    for (const std::size_t bucket : model_.plan.of_unit[unit]) {
        if (!buffers_.has(bucket) || factors_.predivisors[bucket] == 1) continue;
        const vescomm_gpu_piece_t all =
            whole(static_cast<std::size_t>(model_.plan.buckets[bucket].elements));
        check(vescomm_gpu_scale(buffers_.data(slot, bucket), buffers_.type(bucket),
                                1 / factors_.predivisors[bucket], &all, 1, streams_.reduce()));
    }
}

void Gradients::take_sum(int unit, int slot, bool adds) {
    const cuda::Stream stream = streams_.reduce();
    for (const std::size_t bucket : model_.plan.of_unit[unit]) {
        if (!buffers_.has(bucket) || shards_.gradient(bucket).empty()) continue;
        if (model_.plan.buckets[bucket].sums_quantised()) continue;
        float *shard = shards_.gradient(bucket).data();
        const vescomm_gpu_piece_t all = whole(shards_.gradient(bucket).size());
        const void *sum = buffers_.shard(slot, bucket);
        const vescomm_type_t type = buffers_.type(bucket);
        const float factor = factors_.sums[bucket];
        if (adds && factor == 1) {
            check(vescomm_gpu_add(shard, VESCOMM_F32, sum, type, &all, 1, stream));
            continue;
        }
        float *into = adds ? reinterpret_cast<float *>(scratch_.data()) : shard;
        check(vescomm_gpu_copy(into, VESCOMM_F32, sum, type, &all, 1, stream));
        if (factor != 1) check(vescomm_gpu_scale(into, VESCOMM_F32, factor, &all, 1, stream));
        if (adds) check(vescomm_gpu_add(shard, VESCOMM_F32, into, VESCOMM_F32, &all, 1, stream));
    }
    if (quantised_.any(unit)) quantised_.take(unit, adds, stream);
}

void Gradients::finish(bool last) {
    sending_ = false;
    if (!last) return;
    units_.for_unsummed([&](std::size_t bucket) {
        const std::span<float> shard = shards_.gradient(bucket);
        const vescomm_gpu_piece_t all = whole(shard.size());
        if (!shard.empty())
            check(vescomm_gpu_zero(shard.data(), VESCOMM_F32, &all, 1, streams_.reduce()));
    });
}

void Gradients::sum_over_replicas() {
    replica_sums_.over_replicas();
}

void Gradients::sum_replicated() {
    replica_sums_.of_replicated();
}

void Gradients::begin_step() {
    units_.begin_step();
}

void Gradients::drop() {
    units_.drop();
}

}  // namespace vescomm::fsdp::device
