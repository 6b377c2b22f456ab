// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/problem.h"
#include "vescomm/planner_model.hpp"

namespace vescomm::planner {

// Units that differ only in names. They have one type, and tensors of the same shapes, blocks and
// alignments in the same order. Most layers of a model are alike, so a model has few groups.
struct Group {
    Problem problem;  // of the first unit
    Items items;  // of `problem`
    std::int64_t element_bytes = 1;
    std::vector<std::size_t> units;  // indices in the model

    std::int64_t count() const noexcept { return static_cast<std::int64_t>(units.size()); }
};

// A checked model. Bytes of everything, padding for alignment included, fit into 62 bits.
struct Groups {
    int ranks = 1;
    std::vector<Group> groups;  // in order of their first units
    std::vector<std::size_t> of_unit;  // index of each unit's group
    std::int64_t bytes = 0;  // of all tensors
    // Lower bound of the bytes of the fullest rank, for any cuts.
    std::int64_t lower_bound_bytes = 0;
};

// Checks a model and groups its units. Throws std::invalid_argument with a sentence that names the
// unit. Cost: O(tensors log tensors).
Groups to_groups(const Model &model, const Options &options);

}  // namespace vescomm::planner
