// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "planner/groups.h"

namespace vescomm::planner {

// Name of the order in which own() lays out tensors.
constexpr std::string_view by_owner = "owner";

struct Ownership {
    std::vector<Answer> units;  // in the order of the model, without explanations
    double largest_cost_over_mean = 1;  // of the rank with most work
    double bound_cost_over_mean = 1;  // lower bound of largest_cost_over_mean
};

// Assigns every matrix to one rank, and balances the work over all units together.
//
//     1. matrices larger than any stacked one    each to the least loaded rank, largest first
//     2. units with stacked matrices             one unit after another, by zones
//     3. all other matrices                      each to the least loaded rank, largest first
//     4. moves and swaps                         even_out(), for the matrices of 1 and 3
//
// Tensors are reordered within their unit by owner, so each rank's tensors are contiguous. A tensor
// of stacked matrices (batch dimensions) stays one array, so its owners must be ascending, with no
// other tensor of the unit on a rank between them. Such a unit therefore divides the ranks into
// zones: one for each stacked tensor and one for all other tensors. The width of a zone follows
// from its work and the free capacity of its ranks. Within a zone the least loaded rank takes the
// next matrix.
//
// `groups` belong to a model in Mode::owner. Cost: O(matrices log ranks + units * ranks).
Ownership own(const Groups &groups, const Options &options);

// An optimizer's work on the matrices of one tensor. The unit of work is large enough that the work
// of the whole model fits into 64 bits.
struct Works {
    std::int64_t matrices = 1;  // each may have a different owner
    std::int64_t each = 1;  // work on one matrix
};
// Returns the works of each item of each group.
std::vector<std::vector<Works>> works_of(const Groups &groups, Work work);

}  // namespace vescomm::planner
