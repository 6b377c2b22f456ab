// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/problem.h"

namespace vescomm::planner {

// Lays the items out one after another with aligned starts, as ragged layouts do. Returns the first
// element of each item, in `order`, followed by the end of the last item.
std::vector<std::int64_t> concatenate(const Items &items, std::span<const std::size_t> order);

// Equal shards, and the rule for tensors that lie across their boundaries.
struct Shards {
    std::int64_t shard = 0;  // elements, a multiple of Items::alignment
    // Tensors whose period divides `step` may lie across several boundaries, other tensors across
    // at most one. 0: only the blocks limit it. With a nonzero step, which divides the shard, a
    // larger multiple of the step is never worse; with 0 a larger shard can be worse.
    std::int64_t step = 0;
};

// A position in the buffer.
struct Cursor {
    std::int64_t position = 0;
    std::int64_t shard_end = 0;  // of the shard that contains the position or ends there
};

// Moves to the earliest legal start of a tensor at or after the cursor, which is aligned. Returns
// false when there is none. Cost: O(1) for simple grids.
bool go_to_start(Cursor &cursor, const Item &item, const Shards &shards);

// Lays the items out in `order` over equal shards, one for each rank, so that no boundary divides a
// block. Returns true when they fit. Then offsets[i], unless `offsets` is empty, is the first
// element of the i-th item in order. Cost: O(items), independent of the number of ranks.
bool place(const Items &items, std::span<const std::size_t> order, const Shards &shards,
           std::span<std::int64_t> offsets = {});

}  // namespace vescomm::planner
