// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "vescomm/fsdp.hpp"

namespace vescomm::fsdp {

// A layout planned for a unit, and where the specification's tensors are in it.
struct PlannedUnit {
    UnitSpec spec;
    Layout layout;
    std::vector<std::size_t> index;  // of each tensor of the specification, in the layout
    std::int64_t elements = 0;  // of the buffer
    std::int64_t largest_shard = 0;
    std::int64_t padding = 0;
    // Elements of the buffer that belong to no tensor, as [begin, end).
    std::vector<std::pair<std::int64_t, std::int64_t>> gaps;
};

// Throws std::invalid_argument when there is no layout.
PlannedUnit plan_unit(const UnitSpec &spec, int ranks, bool uniform);

// This rank's part of a unit: views into arrays that hold all units of the rank one after another.
struct UnitShard {
    std::span<float> master;
    std::span<float> gradient;
};

}  // namespace vescomm::fsdp
