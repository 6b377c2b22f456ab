// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/gradient_factors.h"

#include <algorithm>

#include "fsdp/engine/divisors.h"
#include "fsdp/report/traffic.h"

namespace vescomm::fsdp::device {

float average_factor(const Spec &spec, double ranks) {
    return spec.options().average != 0 ? static_cast<float>(1.0 / ranks) : 1.0f;
}

GradientFactors::GradientFactors(const Spec &spec, const ModelPlan &plan) {
    const float dense = average_factor(spec, plan.mesh.shard_ranks);
    const float experts = average_factor(spec, expert_divisor(spec, plan.mesh));
    for (const Bucket &bucket : plan.buckets) {
        if (bucket.sums_quantised() || bucket.replicated) {
            predivisors.push_back(1);
            sums.push_back(1);
            continue;
        }
        const float divisor =
            predivisor(bucket.gradient_type, plan.mesh.shard_ranks_of(bucket.kind()));
        predivisors.push_back(divisor);
        sums.push_back(divisor * (bucket.kind() == UnitKind::experts ? experts : dense));
    }
}

std::uint64_t gradient_scratch_bytes(const Spec &spec, const ModelPlan &plan,
                                     const GradientFactors &factors, int position) {
    std::uint64_t bytes = 0;
    for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket)
        if (plan.buckets[bucket].trainable && factors.sums[bucket] != 1)
            bytes =
                std::max(bytes, static_cast<std::uint64_t>(plan.buckets[bucket].shard(position)) *
                                    sizeof(float));
    if (spec.options().offload_to_host == 0) return bytes;
    const std::uint64_t replicated = replicated_gradient_bytes(plan);
    std::uint64_t summed = replicated;
    if (plan.mesh.replicas() > 1)
        summed = std::max(summed, gradient_shard_bytes(plan, position) - replicated);
    return std::max(bytes, std::min(summed_part_bytes, summed));
}

}  // namespace vescomm::fsdp::device
