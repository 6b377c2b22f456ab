// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/gradients.h"

#include <algorithm>

#include "fsdp/error.h"
#include "vescomm/gpu_kernels.h"

namespace vescomm::fsdp::device {

namespace {

vescomm_gpu_piece_t whole(std::size_t elements) {
    return {0, 0, static_cast<std::int64_t>(elements)};
}

std::size_t largest_shard_bytes(const ModelPlan &plan, int position) {
    std::int64_t largest = 0;
    for (const Bucket &bucket : plan.buckets)
        if (bucket.trainable) largest = std::max(largest, bucket.shard(position));
    return static_cast<std::size_t>(largest) * sizeof(float);
}

// As VESCOMM_AVERAGE computes it on host memory.
float average_factor(const Spec &spec, int ranks) {
    return spec.options().average != 0 ? static_cast<float>(1.0 / ranks) : 1.0f;
}

}  // namespace

Gradients::Gradients(const Spec &spec, const ModelPlan &plan, const Shards &shards, int position,
                     std::span<const std::string> unit_names, Watch &watch, Links &links,
                     Streams &streams)
    : spec_(spec),
      plan_(plan),
      shards_(shards),
      unit_names_(unit_names),
      watch_(watch),
      links_(links),
      streams_(streams),
      average_(average_factor(spec, plan.mesh.shard_ranks)),
      pool_(plan.gradient_slot_ranges, plan.gradient_slots.size()),
      buffers_(plan, position, SlotUse::gradients, unit_names, links.shard()),
      scratch_(average_ == 1 ? 0 : largest_shard_bytes(plan, position)),
      drained_(plan.gradient_slots.size()),
      writes_(spec),
      summed_(plan.of_unit.size(), false) {}

void Gradients::acquire(int unit) {
    if (pool_.pins(unit) > 0) return;
    const int slot = open_gradient_slot(pool_, plan_, unit, unit_names_);
    drained_[slot].wait_on(streams_.compute());
    writes_.begin(plan_, unit);
}

void *Gradients::data(std::size_t parameter) const {
    const ParameterPlace &at = *plan_.parameter_places[parameter];
    const Bucket &bucket = plan_.buckets[at.bucket];
    const int slot = pool_.slot_of(static_cast<int>(bucket.unit));
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
        check(vescomm_gpu_zero(data(parameter), spec_.gradient_type(one), &all, 1,
                               streams_.compute()));
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
        check(call(data(parameter), to_type, from, type, &all, 1, streams_.compute()));
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
        check(vescomm_gpu_zero(buffers_.data(slot, bucket), buffers_.type(bucket), pieces.data(),
                               static_cast<std::int64_t>(pieces.size()), streams_.compute()));
    }
}

void Gradients::send(int unit, const Announcement &announcement) {
    const int slot = pool_.slot_of(unit);
    fill_with_zeros(unit, slot);
    pool_.close(unit);
    pool_.drop(unit);
    const bool adds = summed_[unit];
    summed_[unit] = true;
    sending_ = true;
    const std::uint64_t announced = watch_.post(announcement);
    const auto buffers = buffers_.of(slot, static_cast<std::size_t>(unit));
    if (buffers.empty()) return;
    if (!connected_) watch_.verify(announced);
    connected_ = true;
    const cuda::Stream stream = streams_.reduce();
    streams_.order(streams_.compute(), stream);
    links_.shard().call(stream, [&](vescomm_gpu_comm_t *) {
        return vescomm_gpu_buffer_reduce_scatter_v(buffers.data(), buffers.size(), VESCOMM_SUM,
                                                   stream);
    });
    take_sum(unit, slot, adds);
    drained_[slot].record(stream);
}

void Gradients::take_sum(int unit, int slot, bool adds) {
    const cuda::Stream stream = streams_.reduce();
    for (const std::size_t bucket : plan_.of_unit[unit]) {
        if (!buffers_.has(bucket) || shards_.gradient(bucket).empty()) continue;
        float *shard = shards_.gradient(bucket).data();
        const vescomm_gpu_piece_t all = whole(shards_.gradient(bucket).size());
        const void *sum = buffers_.shard(slot, bucket);
        const vescomm_type_t type = buffers_.type(bucket);
        if (adds && average_ == 1) {
            check(vescomm_gpu_add(shard, VESCOMM_F32, sum, type, &all, 1, stream));
            continue;
        }
        float *into = adds ? reinterpret_cast<float *>(scratch_.data()) : shard;
        check(vescomm_gpu_copy(into, VESCOMM_F32, sum, type, &all, 1, stream));
        if (average_ != 1) check(vescomm_gpu_scale(into, VESCOMM_F32, average_, &all, 1, stream));
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
    if (gradients.empty()) return;
    const cuda::Stream stream = streams_.reduce();
    links_.replica().call(stream, [&](vescomm_gpu_comm_t *comm) {
        return vescomm_gpu_all_reduce(comm, gradients.data(), gradients.data(),
                                      static_cast<std::int64_t>(gradients.size()), VESCOMM_F32,
                                      VESCOMM_SUM, stream);
    });
    const float factor = average_factor(spec_, plan_.mesh.replicas());
    if (factor == 1) return;
    const vescomm_gpu_piece_t all = whole(gradients.size());
    check(vescomm_gpu_scale(gradients.data(), VESCOMM_F32, factor, &all, 1, stream));
}

void Gradients::begin_step() {
    summed_.assign(summed_.size(), false);
}

}  // namespace vescomm::fsdp::device
