// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The factors of gradients on device memory, where NCCL does not divide, and the memory that they
// need. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp::device {

// By bucket; 1: none. Sums in 8 bits have none, see quantised_factor(), and neither have replicated
// buckets: their gradients are added in f32.
struct GradientFactors {
    GradientFactors(const Spec &spec, const ModelPlan &plan);

    std::vector<float> predivisors;  // before the sum
    std::vector<float> sums;  // after it, with the average
};

// The factor of sums over `ranks` ranks, as VESCOMM_AVERAGE computes it on host memory.
float average_factor(const Spec &spec, double ranks);

// Gradient shards in host memory are summed over replicas or all ranks in parts of this size, which
// is the same on every rank, or in one part if they have fewer bytes.
constexpr std::uint64_t summed_part_bytes = std::uint64_t{32} << 20;

// Bytes for scaled sums that are added, and for sums over replicas or all ranks of gradient shards
// in host memory. Gradients allocates them when it is created.
std::uint64_t gradient_scratch_bytes(const Spec &spec, const ModelPlan &plan,
                                     const GradientFactors &factors, int position);

}  // namespace vescomm::fsdp::device
