// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "vescomm/planner.hpp"

namespace vescomm::planner {

// What one training step moves: every buffer is gathered before its forward pass and again before
// its backward pass, and its gradients are reduced once.
struct Traffic {
    std::int64_t collectives = 0;
    std::int64_t unequal = 0;  // of these, with shards that differ
    double wire_bytes = 0;  // that the busiest rank receives

    // `count` buffers with such shards. All ranks wait for the largest shard: it goes once round a
    // ring, and its owner adds up what all others have of it.
    void add(const Answer &answer, std::int64_t element_bytes, std::int64_t count);

    double seconds(const Costs &costs) const noexcept;
};

}  // namespace vescomm::planner
