// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/quantised_sums.h"

#include <span>

#include "fsdp/engine/device/codes.h"
#include "fsdp/engine/divisors.h"
#include "vescomm/gpu_kernels.h"

namespace vescomm::fsdp::device {

namespace {

// The runs of a shard, for kernels, if its codes begin at byte `at`.
std::vector<GatherRun> runs_at(const GatherCodes &codes, std::size_t shard, std::uint64_t at) {
    const std::size_t first = codes.first_run[shard];
    std::vector<GatherRun> runs =
        kernel_runs(std::span(codes.runs).subspan(first, codes.first_run[shard + 1] - first));
    const std::uint64_t before = at - static_cast<std::uint64_t>(codes.cuts[shard]);
    for (GatherRun &run : runs) {
        run.codes += before;
        run.scales += before;
    }
    return runs;
}

}  // namespace

QuantisedSums::QuantisedSums(const Spec &spec, const ModelPlan &plan, const Shards &shards,
                             int position)
    : plan_(plan),
      shards_(shards),
      position_(position),
      places_(plan),
      dense_factor_(quantised_factor(spec, plan.mesh, UnitKind::dense)),
      expert_factor_(quantised_factor(spec, plan.mesh, UnitKind::experts)),
      all_(plan.buckets.size()),
      own_(plan.buckets.size()),
      sent_(places_.sent_bytes(), Place::device, plan.device_allocator),
      received_(places_.received_bytes(position), Place::device, plan.device_allocator) {
    for (std::size_t unit = 0; unit < plan.of_unit.size(); ++unit)
        received_blocks_.push_back(places_.received_blocks(unit, position));
    for (std::size_t index = 0; index < plan.buckets.size(); ++index) {
        const Bucket &bucket = plan.buckets[index];
        if (!bucket.sums_quantised()) continue;
        const auto shards_of = static_cast<std::size_t>(plan.mesh.shard_ranks_of(bucket.kind()));
        for (std::size_t shard = 0; shard < shards_of; ++shard) {
            const auto runs = runs_at(bucket.codes, shard, places_.sent_at(index, shard));
            all_[index].insert(all_[index].end(), runs.begin(), runs.end());
        }
        const auto own = static_cast<std::size_t>(bucket.shard_number(position));
        own_[index] = runs_at(bucket.codes, own, places_.block_at(index, own));
    }
}

void QuantisedSums::send(int unit, int slot, const SlotBuffers &gradients, Link &link,
                         cuda::Stream stream) {
    for (const std::size_t bucket : plan_.of_unit[unit]) {
        if (all_[bucket].empty()) continue;
        const Bucket &planned = plan_.buckets[bucket];
        quantise_runs(all_[bucket], planned.reduce_type, gradients.data(slot, bucket),
                      planned.gradient_type, 0, sent_.data(), stream);
    }
    const auto number = static_cast<std::size_t>(unit);
    link.call(stream, [&](vescomm_gpu_comm_t *comm) {
        return vescomm_gpu_all_to_all_v(comm, sent_.data(), places_.sent_blocks(number).data(),
                                        nullptr, received_.data(), received_blocks_[number].data(),
                                        nullptr, VESCOMM_U8, stream);
    });
}

void QuantisedSums::take(int unit, bool adds, cuda::Stream stream) {
    const std::vector<std::int64_t> &blocks = received_blocks_[static_cast<std::size_t>(unit)];
    for (const std::size_t bucket : plan_.of_unit[unit]) {
        const Bucket &planned = plan_.buckets[bucket];
        float *const shard = shards_.gradient(bucket).data();
        const bool experts = planned.kind() == UnitKind::experts;
        for (const GatherRun &run : own_[bucket])
            check(vescomm_gpu_sum_quantised(
                shard + (run.offset - planned.begin(position_)), adds ? 1 : 0,
                received_.data() + run.codes, blocks[0], scales_at(received_.data(), run),
                blocks[0] / static_cast<std::int64_t>(sizeof(float)),
                static_cast<std::int32_t>(blocks.size()), planned.reduce_type, run.elements,
                run.block, experts ? expert_factor_ : dense_factor_, stream));
    }
}

}  // namespace vescomm::fsdp::device
