// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/problem.h"

namespace vescomm::planner {

// One after another, starts aligned: how ragged layouts lie in the buffer. Returns the first
// element of each item, in `order`, and last the end of the last one.
std::vector<std::int64_t> concatenate(const Items &items, std::span<const std::size_t> order);

// Equal shards, and which of their boundaries tensors may be laid across.
struct Shards {
    std::int64_t shard = 0;  // elements, a multiple of Items::alignment
    // Tensors whose period divides `step` may lie across several boundaries, others across one at
    // most. 0: whatever the blocks allow. With a step (a divisor of the shard) a larger shard,
    // again a multiple of the step, is never worse; without one it can be.
    std::int64_t step = 0;
};

// A place in the buffer, and the end of the shard that it is in, or that ends there.
struct Cursor {
    std::int64_t position = 0;
    std::int64_t shard_end = 0;
};

// Goes to the earliest legal start of a tensor at or after the cursor, which is aligned. Returns
// false when there is none. Cost: O(1) for simple grids.
bool go_to_start(Cursor &cursor, const Item &item, const Shards &shards);

// Lays the items out in `order` over ranks equal shards, so that no boundary divides a block.
// Returns whether they fit; then offsets[i], unless `offsets` is empty, is the first element of the
// i-th in order. Cost: O(items), whatever the number of ranks.
bool place(const Items &items, std::span<const std::size_t> order, const Shards &shards,
           std::span<std::int64_t> offsets = {});

}  // namespace vescomm::planner
