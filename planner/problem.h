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

// A tensor as the algorithms see it: a number of elements and where it may be cut.
struct Item {
    std::size_t tensor = 0;  // index in the problem
    Grid grid;
    std::int64_t alignment = 1;  // of its start: Options::start_alignment and the tensor's own

    std::int64_t elements() const noexcept { return grid.elements(); }
};

// A checked problem. Sums of everything below, alignment included, fit into 62 bits.
struct Items {
    std::vector<Item> items;  // the tensors that have elements, in the user's order
    std::vector<std::size_t> empty;  // the others, which may lie anywhere
    std::int64_t elements = 0;  // of all tensors
    std::int64_t occupied = 0;  // with every start aligned, in the best order
    std::int64_t room = 0;  // in which any order fits
    // The least common multiple of all alignments, of which uniform shards are multiples;
    // `unbounded` when it is larger than an alignment may be.
    std::int64_t alignment = 1;
    int ranks = 1;
};

// Throws std::invalid_argument.
Items to_items(const Problem &problem, const Options &options);

// A name between quotes, on one line, for sentences.
std::string quoted(const std::string &name);

}  // namespace vescomm::planner
