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
// A larger shard can be worse than a smaller one: its boundaries may miss the blocks. But fix the
// tensors that lie across several boundaries; then the shard is a multiple of the least common
// multiple of their periods, and among those multiples larger is never worse, because a layout for
// k * step becomes one for (k + 1) * step by making room at the start of every shard. So one binary
// search for each distinct least common multiple, of which real layers have 4 to 13, is exact.
//
// Where sub-matrices restart the grid of blocks there are also a few shards in between that fit by
// chance (see place.cc); they are tried one by one.
class UniformSearch {
public:
    // `bound`: no shard is smaller; a multiple of `alignment`.
    UniformSearch(const Items &items, std::int64_t alignment, std::int64_t bound);

    // The smallest shard for the order that is smaller than `best`, or nothing.
    std::optional<std::int64_t> smallest(std::span<const std::size_t> order, std::int64_t best);

    // The largest shard there can be: everything in one, or the most that the buffer's size allows.
    std::int64_t largest() const noexcept { return largest_; }

    // The least common multiples; the shards in between that are below `best`, ascending.
    const std::vector<std::int64_t> &steps() const noexcept { return steps_; }
    std::vector<std::int64_t> candidates_below(std::int64_t best);

    // False when there were too many candidates to try them all: an answer above the bound may then
    // not be the smallest for its order.
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
