// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/problem.h"

namespace vescomm::planner {

// Tensors whose blocks, including the short ones, are all multiples of `size`. A shard holds a
// multiple of `size` of their elements: at most S - S % size in a shard of S elements.
struct Granule {
    std::int64_t size = 1;  // elements
    std::int64_t elements = 0;  // total of these tensors
};

// Returns the largest number that divides all blocks of a grid.
std::int64_t granule_of(const Grid &grid);

// Returns a granule for each common divisor of some of the given sizes, with the elements of all
// given granules that it divides. Returns at most a few hundred. Cost: O(n log n).
std::vector<Granule> common_granules(std::vector<Granule> given);

// Returns the granule whose elements need most space in shards of one size.
Granule coarsest(std::span<const Granule> granules, std::int64_t shard);

// Returns the minimum distance from the start of the first to the end of the last element of a
// granule. At most two shards are only partly covered; in every shard between them the remainder
// that holds no granule counts as well. Cost: a division.
std::int64_t space_of(const Granule &granule, std::int64_t shard);

}  // namespace vescomm::planner
