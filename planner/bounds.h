// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "planner/problem.h"

namespace vescomm::planner {

// Lower bounds of the largest shard, whatever the order of the tensors and wherever they start.

// The mean: ranks shards hold everything.
std::int64_t mean_bound(const Items &items);

// Blocks are not divided, so among the j * ranks + 1 largest some j + 1 share a shard. With j = 0
// this is the largest block. Cost: O(tensors log tensors).
std::int64_t block_bound(const Items &items);

// Blocks of many tensors are multiples of one number, of rows in a block times a divisor of the row
// lengths, for instance. What a shard holds of such tensors is a multiple of it too, so some shard
// holds their mean, rounded up to that multiple. Returns the largest such bound over the common
// divisors of blocks. Cost: O(tensors log tensors).
std::int64_t granule_bound(const Items &items);

// The largest of these.
std::int64_t lower_bound(const Items &items);

// Uniform shards only. A tensor that is cut by two boundaries k * S and (k + 1) * S has both on its
// grid, so the distance S between them is a multiple of its block; and every tensor longer than
// S + (the largest piece that ends at a boundary) is cut twice. Returns the smallest multiple of
// `alignment`, at least `at_least`, that satisfies this for every tensor.
// Cost: O(tensors log tensors).
std::int64_t uniform_bound(const Items &items, std::int64_t alignment, std::int64_t at_least);

}  // namespace vescomm::planner
