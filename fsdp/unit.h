// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "vescomm/fsdp.hpp"

namespace vescomm::fsdp {

// A unit and the layout planned for it.
struct PlannedUnit {
    UnitSpec spec;
    Layout layout;
    std::vector<std::size_t> index;  // index in the layout of each tensor of the specification
    std::int64_t elements = 0;  // of the buffer
    std::int64_t largest_shard = 0;
    std::int64_t padding = 0;
    // Elements of the buffer that belong to no tensor, as [begin, end).
    std::vector<std::pair<std::int64_t, std::int64_t>> gaps;
};

// Plans the layout of a unit. Throws std::invalid_argument when there is none.
PlannedUnit plan_unit(const UnitSpec &spec, int ranks, bool uniform);

// This rank's shard of a unit: views into arrays that hold the shards of all units.
struct UnitShard {
    std::span<float> master;
    std::span<float> gradient;
};

}  // namespace vescomm::fsdp
