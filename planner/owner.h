// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "planner/groups.h"

namespace vescomm::planner {

// The name of the order that own() lays tensors out in.
constexpr std::string_view by_owner = "owner";

struct Ownership {
    std::vector<Answer> units;  // as in the model, without explanations
    double largest_cost_over_mean = 1;  // of the rank that has most to do
    double bound_cost_over_mean = 1;  // no assignment has less
};

// Whole matrices on one rank each, their work balanced over all units together.
//
//     matrices that are larger than any that are stacked    longest processing time first: the
//     units with stacked matrices, one by one               largest that is left to the rank that
//     all other matrices                                    has least; then moves and swaps
//
// Tensors are reordered within their unit by owner, so every rank's are contiguous. A tensor of
// stacked matrices (batch dimensions) stays one array, so its owners must be ascending, with no
// other tensor of the unit on a rank between them. So such a unit divides the ranks into zones,
// one for each such tensor and one for all others, as wide as the work that the ranks in them lack;
// within a zone again the rank that has least takes the next matrix.
//
// `groups` of a model in Mode::owner. Cost: O(matrices log ranks + units * ranks).
Ownership own(const Groups &groups, const Options &options);

// What an optimizer does to each matrix of a tensor, in units so large that all work of the model
// can be counted.
struct Works {
    std::int64_t matrices = 1;  // that may have different owners
    std::int64_t each = 1;
};
std::vector<std::vector<Works>> works_of(const Groups &groups, Work work);  // of each group's items

}  // namespace vescomm::planner
