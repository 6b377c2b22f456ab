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

SumCodes::SumCodes(const ModelPlan &plan)
    : plan_(plan),
      sent_(plan.of_unit.size()),
      sent_at_(plan.buckets.size()),
      first_(plan.buckets.size(), 0) {
    for (std::size_t unit = 0; unit < plan.of_unit.size(); ++unit) {
        std::vector<std::size_t> quantised;
        for (const std::size_t bucket : plan.of_unit[unit])
            if (plan.buckets[bucket].sums_quantised()) quantised.push_back(bucket);
        if (quantised.empty()) continue;
        for (const std::size_t bucket : quantised) first_[bucket] = quantised[0];
        std::uint64_t end = 0;
        for (int shard = 0; shard < plan.mesh.shard_ranks_of(plan.kinds[unit]); ++shard) {
            const std::uint64_t begin = end;
            for (const std::size_t bucket : quantised) {
                sent_at_[bucket].push_back(end);
                end += align(plan.buckets[bucket].codes.bytes(shard));
            }
            sent_[unit].push_back(static_cast<std::int64_t>(end - begin));
        }
        sent_bytes_ = std::max(sent_bytes_, end);
    }
}

std::size_t SumCodes::own_shard(std::size_t unit, int position) const {
    // Buckets of a unit that travel are divided among the same ranks.
    const auto travels = [&](std::size_t bucket) { return plan_.buckets[bucket].sums_quantised(); };
    const auto bucket = std::ranges::find_if(plan_.of_unit[unit], travels);
    return static_cast<std::size_t>(plan_.buckets[*bucket].shard_number(position));
}

std::vector<std::int64_t> SumCodes::received_blocks(std::size_t unit, int position) const {
    const std::vector<std::int64_t> &sent = sent_[unit];
    if (sent.empty()) return {};
    return std::vector<std::int64_t>(sent.size(), sent[own_shard(unit, position)]);
}

std::uint64_t SumCodes::received_bytes(int position) const {
    std::uint64_t bytes = 0;
    for (std::size_t unit = 0; unit < sent_.size(); ++unit)
        if (!sent_[unit].empty())
            bytes = std::max(
                bytes, sent_[unit].size() *
                           static_cast<std::uint64_t>(sent_[unit][own_shard(unit, position)]));
    return bytes;
}

}  // namespace vescomm::fsdp::device
