// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/grid.h"
#include "vescomm/planner.hpp"

namespace vescomm::planner {

// More would take minutes and gigabytes.
inline constexpr int max_ranks = 10'000'000;

// A tensor as the algorithms see it: its number of elements and its legal cuts.
struct Item {
    std::size_t tensor = 0;  // index in the problem
    Grid grid;
    // The start is a multiple of this, in elements: the least common multiple of
    // Options::start_alignment and the tensor's own alignment.
    std::int64_t alignment = 1;

    std::int64_t elements() const noexcept { return grid.elements(); }
};

// A checked problem. Sums of all numbers below, alignment included, fit into 62 bits.
struct Items {
    std::vector<Item> items;  // tensors that have elements, in the user's order
    std::vector<std::size_t> empty;  // indices of tensors without elements; they may lie anywhere
    std::int64_t elements = 0;  // total of all tensors
    std::int64_t occupied = 0;  // elements with every start aligned, in the best order
    std::int64_t max_occupied = 0;  // elements that suffice for any order, every start aligned
    // Least common multiple of all alignments; a uniform shard is a multiple of it. `unbounded`
    // when it exceeds the largest allowed alignment.
    std::int64_t alignment = 1;
    int ranks = 1;
};

// Checks a problem and its options. Throws std::invalid_argument.
Items to_items(const Problem &problem, const Options &options);

}  // namespace vescomm::planner
