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

}  // namespace vescomm::fsdp
