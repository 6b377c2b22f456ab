// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/problem.h"

namespace vescomm::planner {

// Finds the smallest equal shard for an order of the items.
//
// A larger shard can be worse than a smaller one, because its boundaries may miss the blocks. For a
// fixed set of tensors that lie across several boundaries, however, the shard is a multiple of the
// least common multiple `step` of their periods. Among these multiples a larger one is never worse:
// a layout for k * step becomes one for (k + 1) * step by padding at the start of every shard. So a
// binary search for each distinct least common multiple is exact. Real layers have 4 to 13 of them.
//
// When sub-matrices restart the grid of blocks, a few other shards can fit as well (see place.cc).
// They are tried one by one.
class UniformSearch {
public:
    // `bound` is a lower bound of the shard and a multiple of `alignment`.
    UniformSearch(const Items &items, std::int64_t alignment, std::int64_t bound);

    // Returns the smallest shard for the order if it is smaller than `best`, otherwise nothing.
    std::optional<std::int64_t> smallest(std::span<const std::size_t> order, std::int64_t best);

    // The largest shard considered: all tensors in one shard, or the limit of the buffer's size.
    std::int64_t largest() const noexcept { return largest_; }

    // The least common multiples.
    const std::vector<std::int64_t> &steps() const noexcept { return steps_; }
    // Returns the other shards below `best` that can fit, ascending.
    std::vector<std::int64_t> candidates_below(std::int64_t best);

    // False when there are too many candidates to try all. An answer above the bound may then not
    // be the smallest for its order.
    bool exhaustive() const noexcept { return exhaustive_; }

private:
    const Items &items_;
    std::int64_t alignment_;
    std::int64_t bound_;
    std::int64_t largest_ = 0;
    std::vector<std::int64_t> steps_;
    bool exhaustive_ = true;
};

}  // namespace vescomm::planner
