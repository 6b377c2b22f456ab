// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "vescomm/planner.hpp"

namespace vescomm::planner {

// Network traffic of one training step. Every buffer is gathered before its forward pass and again
// before its backward pass, and its gradients are reduced once.
struct Traffic {
    std::int64_t collectives = 0;
    std::int64_t unequal = 0;  // collectives whose shards differ
    double wire_bytes = 0;  // received by the busiest rank

    // Adds the traffic of `count` buffers. All ranks wait for the largest shard: a gather sends it
    // once round a ring, and in a reduction its owner receives a contribution from every other
    // rank.
    void add(const Answer &answer, std::int64_t element_bytes, std::int64_t count);

    double seconds(const Costs &costs) const noexcept;
};

}  // namespace vescomm::planner
