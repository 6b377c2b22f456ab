// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/gradients.h"

#include <algorithm>

#include "fsdp/engine/divisors.h"
#include "fsdp/error.h"
#include "fsdp/report/traffic.h"
#include "vescomm/gpu_kernels.h"

namespace vescomm::fsdp::device {

namespace {

vescomm_gpu_piece_t whole(std::size_t elements) {
    return {0, 0, static_cast<std::int64_t>(elements)};
}

// Gradient shards in pinned memory are summed over replicas in parts of this size.
constexpr std::size_t replica_part_bytes = std::size_t{32} << 20;

// As VESCOMM_AVERAGE computes it on host memory.
float average_factor(const Spec &spec, double ranks) {
    return spec.options().average != 0 ? static_cast<float>(1.0 / ranks) : 1.0f;
}

std::vector<float> predivisors(const ModelPlan &plan) {
    std::vector<float> divisors;
    for (const Bucket &bucket : plan.buckets)
        divisors.push_back(
            predivisor(bucket.gradient_type, plan.mesh.shard_ranks_of(bucket.kind())));
    return divisors;
}

// `factors`: the predivisors.
std::vector<float> sum_factors(const Spec &spec, const ModelPlan &plan,
                               std::vector<float> factors) {
    const float dense = average_factor(spec, plan.mesh.shard_ranks);
    const float experts = average_factor(spec, expert_divisor(spec, plan.mesh));
    for (std::size_t bucket = 0; bucket < factors.size(); ++bucket)
        factors[bucket] *= plan.buckets[bucket].kind() == UnitKind::experts ? experts : dense;
    return factors;
}

// `factors`: those of sums, by bucket.
std::size_t scratch_needed(const ModelPlan &plan, const Shards &shards,
                           const std::vector<float> &factors) {
    std::size_t bytes = 0;
    for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket)
        if (plan.buckets[bucket].trainable && factors[bucket] != 1)
            bytes = std::max(bytes, shards.gradient(bucket).size_bytes());
    if (!shards.on_device() && plan.mesh.replicas() > 1)
        bytes = std::max(bytes, std::min(replica_part_bytes, shards.gradients().size_bytes()));
    return bytes;
}

}  // namespace

Gradients::Gradients(const Spec &spec, const ModelPlan &plan, const Shards &shards, int position,
                     std::span<const std::string> unit_names, Watch &watch, Links &links,
                     Streams &streams, const Transfers &transfers)
    : spec_(spec),
      plan_(plan),
      position_(position),
      shards_(shards),
      unit_names_(unit_names),
      watch_(watch),
      links_(links),
      streams_(streams),
      predivisors_(predivisors(plan)),
      factors_(sum_factors(spec, plan, predivisors_)),
      pool_(plan.gradient_slot_ranges, plan.gradient_slots.size()),
      buffers_(plan, position, SlotUse::gradients, unit_names, links),
      scratch_(scratch_needed(plan, shards, factors_)),
      written_(plan.gradient_slots.size()),
      drained_(plan.gradient_slots.size()),
      transfers_(transfers),
      writes_(spec),
      summed_(plan.of_unit.size(), false) {}

template <typename Body>
void Gradients::write(int slot, Body &&body) {
    written_[slot].wait_on(streams_.compute());
    body(streams_.compute());
    written_[slot].record(streams_.compute());
}

int Gradients::slot_of(std::size_t parameter) const {
    const ParameterPlace &at = *plan_.parameter_places[parameter];
    return pool_.slot_of(static_cast<int>(plan_.buckets[at.bucket].unit));
}

void Gradients::acquire(int unit) {
    // The events of one unit may be on several streams.
    if (pool_.pins(unit) > 0) return written_[pool_.slot_of(unit)].wait_on(streams_.compute());
    const int slot = open_gradient_slot(pool_, plan_, unit, unit_names_);
    write(slot, [&](cuda::Stream stream) { drained_[slot].wait_on(stream); });
    writes_.begin(plan_, unit);
}

void *Gradients::data(std::size_t parameter) const {
    const ParameterPlace &at = *plan_.parameter_places[parameter];
    const Bucket &bucket = plan_.buckets[at.bucket];
    const int slot = slot_of(parameter);
    if (slot == SlotPool::none || !buffers_.has(at.bucket)) return nullptr;
    return buffers_.data(slot, at.bucket) +
           static_cast<std::size_t>(bucket.places[at.place].offset) *
               vescomm_type_get_bytes(bucket.gradient_type);
}

vescomm_fsdp_gradient_mode_t Gradients::begin_write(std::size_t parameter) {
    const Parameter &one = spec_.parameters()[parameter];
    const GradientWrites::Begin begin = writes_.begin_write(parameter);
    if (begin.zeros && one.elements > 0) {
        const vescomm_gpu_piece_t all = whole(static_cast<std::size_t>(one.elements));
        write(slot_of(parameter), [&](cuda::Stream stream) {
            check(vescomm_gpu_zero(data(parameter), spec_.gradient_type(one), &all, 1, stream));
        });
    }
    return begin.mode;
}

void Gradients::push(std::size_t parameter, const void *from, vescomm_type_t type) {
    const Parameter &one = spec_.parameters()[parameter];
    const vescomm_type_t to_type = spec_.gradient_type(one);
    require_gradient_type(type, to_type);
    if (one.elements > 0) {
        const vescomm_gpu_piece_t all = whole(static_cast<std::size_t>(one.elements));
        const auto call = writes_.written(parameter) ? vescomm_gpu_add : vescomm_gpu_copy;
        write(slot_of(parameter), [&](cuda::Stream stream) {
            check(call(data(parameter), to_type, from, type, &all, 1, stream));
        });
    }
    writes_.set_written(parameter);
}

void Gradients::fill_with_zeros(int unit, int slot) {
    std::vector<vescomm_gpu_piece_t> pieces;
    for (const std::size_t bucket : plan_.of_unit[unit]) {
        if (!buffers_.has(bucket)) continue;
        pieces.clear();
        writes_.for_gaps(plan_.buckets[bucket], [&](std::int64_t begin, std::int64_t end) {
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

void Gradients::send(int unit, const Announcement &announcement) {
    const int slot = pool_.slot_of(unit);
    fill_with_zeros(unit, slot);
    pool_.close(unit);
    pool_.drop(unit);
    transfers_.begin(slot, reduce_bytes(plan_, static_cast<std::size_t>(unit), position_),
                     static_cast<std::size_t>(unit));
    const auto waits = transfers_.waits(slot);
    start(unit, slot, announcement);
    transfers_.end(slot);
}

void Gradients::start(int unit, int slot, const Announcement &announcement) {
    const bool adds = summed_[unit];
    summed_[unit] = true;
    sending_ = true;
    const std::uint64_t announced = watch_.post(announcement);
    const auto buffers = buffers_.of(slot, static_cast<std::size_t>(unit));
    if (buffers.empty()) return;
    const UnitKind kind = plan_.kinds[unit];
    bool &connected = connected_[static_cast<int>(kind)];
    if (!connected) watch_.verify(announced);
    connected = true;
    const cuda::Stream stream = streams_.reduce();
    written_[slot].wait_on(stream);
    streams_.order(streams_.compute(), stream);
    divide(unit, slot);
    links_.shard(kind).call(stream, [&](vescomm_gpu_comm_t *) {
        return vescomm_gpu_buffer_reduce_scatter_v(buffers.data(), buffers.size(), VESCOMM_SUM,
                                                   stream);
    });
    take_sum(unit, slot, adds);
    drained_[slot].record(stream);
}

void Gradients::divide(int unit, int slot) {
    for (const std::size_t bucket : plan_.of_unit[unit]) {
        if (!buffers_.has(bucket) || predivisors_[bucket] == 1) continue;
        const vescomm_gpu_piece_t all =
            whole(static_cast<std::size_t>(plan_.buckets[bucket].elements));
        check(vescomm_gpu_scale(buffers_.data(slot, bucket), buffers_.type(bucket),
                                1 / predivisors_[bucket], &all, 1, streams_.reduce()));
    }
}

void Gradients::take_sum(int unit, int slot, bool adds) {
    const cuda::Stream stream = streams_.reduce();
    for (const std::size_t bucket : plan_.of_unit[unit]) {
        if (!buffers_.has(bucket) || shards_.gradient(bucket).empty()) continue;
        float *shard = shards_.gradient(bucket).data();
        const vescomm_gpu_piece_t all = whole(shards_.gradient(bucket).size());
        const void *sum = buffers_.shard(slot, bucket);
        const vescomm_type_t type = buffers_.type(bucket);
        const float factor = factors_[bucket];
        if (adds && factor == 1) {
            check(vescomm_gpu_add(shard, VESCOMM_F32, sum, type, &all, 1, stream));
            continue;
        }
        float *into = adds ? reinterpret_cast<float *>(scratch_.data()) : shard;
        check(vescomm_gpu_copy(into, VESCOMM_F32, sum, type, &all, 1, stream));
        if (factor != 1) check(vescomm_gpu_scale(into, VESCOMM_F32, factor, &all, 1, stream));
        if (adds) check(vescomm_gpu_add(shard, VESCOMM_F32, into, VESCOMM_F32, &all, 1, stream));
    }
}

void Gradients::finish(bool last) {
    sending_ = false;
    if (!last) return;
    for (std::size_t unit = 0; unit < summed_.size(); ++unit) {
        if (summed_[unit]) continue;
        for (const std::size_t bucket : plan_.of_unit[unit]) {
            if (!plan_.buckets[bucket].trainable || shards_.gradient(bucket).empty()) continue;
            const vescomm_gpu_piece_t all = whole(shards_.gradient(bucket).size());
            check(vescomm_gpu_zero(shards_.gradient(bucket).data(), VESCOMM_F32, &all, 1,
                                   streams_.reduce()));
        }
    }
}

void Gradients::sum_over_replicas() {
    const std::span<float> gradients = shards_.gradients();
    if (shards_.on_device()) return sum_over_replicas(gradients, gradients.data());
    // NCCL sums memory of the device only.
    const std::size_t part = scratch_.size() / sizeof(float);
    for (std::size_t begin = 0; begin < gradients.size(); begin += part)
        sum_over_replicas(gradients.subspan(begin, std::min(part, gradients.size() - begin)),
                          reinterpret_cast<float *>(scratch_.data()));
}

void Gradients::sum_over_replicas(std::span<float> part, float *sum) {
    if (part.empty()) return;
    const cuda::Stream stream = streams_.reduce();
    const vescomm_gpu_piece_t all = whole(part.size());
    const auto copy = [&](float *to, const float *from) {
        if (to != from)
            check(vescomm_gpu_copy(to, VESCOMM_F32, from, VESCOMM_F32, &all, 1, stream));
    };
    copy(sum, part.data());
    links_.replica().call(stream, [&](vescomm_gpu_comm_t *comm) {
        return vescomm_gpu_all_reduce(comm, sum, sum, static_cast<std::int64_t>(part.size()),
                                      VESCOMM_F32, VESCOMM_SUM, stream);
    });
    const float factor = average_factor(spec_, plan_.mesh.replicas());
    if (factor != 1) check(vescomm_gpu_scale(sum, VESCOMM_F32, factor, &all, 1, stream));
    copy(part.data(), sum);
}

void Gradients::begin_step() {
    summed_.assign(summed_.size(), false);
}

void Gradients::drop() {
    pool_.drop_pinned();
    begin_step();
}

}  // namespace vescomm::fsdp::device
