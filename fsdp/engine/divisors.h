// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The divisors of averages. Sums over a shard group and then over replicas are averages each.
#pragma once

#include "fsdp/spec/mesh.h"
#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

// The divisor of sums of experts over the ranks that have the same ones. 1: sums are no averages.
inline float expert_divisor(const Spec &spec, const Mesh &mesh) {
    if (spec.options().average == 0) return 1;
    const int asked = spec.options().expert_divisor;
    const double divisor = asked > 0 ? asked : mesh.ranks;
    return static_cast<float>(divisor / mesh.replicas());
}

// The factor of sums of gradients in 8 bits over the ranks that shard a unit.
inline float quantised_factor(const Spec &spec, const Mesh &mesh, UnitKind kind) {
    if (kind == UnitKind::experts) return 1.0f / expert_divisor(spec, mesh);
    return spec.options().average == 0 ? 1.0f : 1.0f / static_cast<float>(mesh.shard_ranks);
}

// The divisor of gradients before their sum over `ranks` ranks in `type`; the sum is multiplied by
// it in f32. In f16 it is the smallest power of two that is not below the square root of the ranks,
// a compromise: a larger one prevents more overflows, and a smaller one keeps more bits of small
// gradients.
inline float predivisor(vescomm_type_t type, int ranks) {
    float divisor = 1;
    if (type == VESCOMM_F16)
        while (divisor * divisor < static_cast<float>(ranks)) divisor *= 2;
    return divisor;
}

}  // namespace vescomm::fsdp
