// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "planner/problem.h"

namespace vescomm::planner {

// Lower bounds of the largest shard. They hold for any order and any start of the tensors.

// The mean of all shards.
std::int64_t mean_bound(const Items &items);

// Blocks are not divided, so among the j * ranks + 1 largest blocks some j + 1 share a shard. With
// j = 0 this is the largest block. Cost: O(tensors log tensors).
std::int64_t block_bound(const Items &items);

// Blocks of many tensors are multiples of one number, for instance the rows in a block times a
// divisor of the row lengths. The elements of such tensors in a shard are then a multiple of it
// too, so some shard holds at least their mean, rounded up to that multiple. Returns the largest
// such bound over the common divisors of blocks. Cost: O(tensors log tensors).
std::int64_t granule_bound(const Items &items);

// The maximum of the three bounds above.
std::int64_t lower_bound(const Items &items);

// Lower bound for uniform shards only. A tensor that is cut at two boundaries k * S and (k + 1) * S
// has both on its grid, so the distance S between them is a multiple of its block. Every tensor
// longer than S + (the largest piece that ends at a boundary) is cut twice. Returns the smallest
// multiple of `alignment`, at least `at_least`, that satisfies this for every tensor.
// Cost: O(tensors log tensors).
std::int64_t uniform_bound(const Items &items, std::int64_t alignment, std::int64_t at_least);

}  // namespace vescomm::planner
