// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/sum_codes.h"

#include <algorithm>

namespace vescomm::fsdp::device {

namespace {

// Buckets begin at multiples of this in a block, so that kernels read 16 bytes at a time.
constexpr std::uint64_t alignment = 16;

std::uint64_t align(std::uint64_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace

SumCodes::SumCodes(const ModelPlan &plan, int position)
    : sent_(plan.of_unit.size()),
      received_(plan.of_unit.size()),
      sent_at_(plan.buckets.size()),
      received_at_(plan.buckets.size(), 0) {
    for (std::size_t unit = 0; unit < plan.of_unit.size(); ++unit) {
        std::vector<std::size_t> quantised;
        for (const std::size_t bucket : plan.of_unit[unit])
            if (plan.buckets[bucket].sums_quantised()) quantised.push_back(bucket);
        if (quantised.empty()) continue;
        const int ranks = plan.mesh.shard_ranks_of(plan.kinds[unit]);
        const int own = plan.buckets[quantised[0]].shard_number(position);
        std::uint64_t end = 0;
        for (int shard = 0; shard < ranks; ++shard) {
            const std::uint64_t begin = end;
            for (const std::size_t bucket : quantised) {
                sent_at_[bucket].push_back(end);
                if (shard == own) received_at_[bucket] = end - begin;
                end += align(plan.buckets[bucket].codes.bytes(shard));
            }
            sent_[unit].push_back(static_cast<std::int64_t>(end - begin));
        }
        const std::int64_t block = sent_[unit][static_cast<std::size_t>(own)];
        received_[unit].assign(static_cast<std::size_t>(ranks), block);
        sent_bytes_ = std::max(sent_bytes_, end);
        received_bytes_ = std::max(
            received_bytes_, static_cast<std::uint64_t>(block) * static_cast<std::uint64_t>(ranks));
    }
}

}  // namespace vescomm::fsdp::device
