// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planner/problem.h"

namespace vescomm::planner {

// Tensors all of whose blocks, the short ones too, are multiples of one number. So is what a shard
// holds of them, whatever else it holds: of S elements they can only have S - S % size.
struct Granule {
    std::int64_t size = 1;
    std::int64_t elements = 0;  // of these tensors
};

// What all blocks of one grid are multiples of.
std::int64_t granule_of(const Grid &grid);

// One for each common divisor of some of the given ones, with the elements of all that it divides;
// but not more than a few hundred. Cost: O(n log n).
std::vector<Granule> common_granules(std::vector<Granule> given);

// The granule whose elements take most room in shards of one size.
Granule coarsest(std::span<const Granule> granules, std::int64_t shard);

// The least from the start of the first to the end of the last of the elements of a granule: there
// are at most two shards that they begin or end in, and what those in between cannot hold counts.
// Cost: a division.
std::int64_t room_of(const Granule &granule, std::int64_t shard);

}  // namespace vescomm::planner
