// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/cut.h"
#include "planner/weights.h"

namespace vescomm::planner {

// Buffers that are alike, to be cut, not necessarily at the same places.
struct Cuttable {
    const Line *line = nullptr;
    std::int64_t element_bytes = 1;
    std::int64_t count = 1;
    // What each rank may own of one of them; possible(line, limits) holds.
    std::span<const std::int64_t> limits;
};

// The cuts of `count` of these buffers.
struct Cuts {
    std::vector<std::int64_t> cuts;  // ranks + 1
    std::int64_t count = 1;
};

struct Balanced {
    std::vector<std::vector<Cuts>> cuts;  // for each Cuttable; counts add up to its own
    double largest_over_share = 1;  // of all ranks' bytes
};

// How many different cuts balance() may make beyond one for each Cuttable: memory and time stay
// bounded, and buffers alike then share cuts.
constexpr std::int64_t max_balanced_cuts = std::int64_t{1} << 18;  // cuts times ranks

// Cuts all buffers together, so that each rank's bytes of all of them are as even as blocks allow
// (or follow its weight).
//
// Buffer after buffer is cut where that brings the sums nearest to what they should be; the error
// of a cut is then at most half a block of the last buffer, however many there are. So those with
// coarse blocks come first. Finally one buffer after another is cut anew, as well as possible given
// all others.
//
// Cost: O(items + ranks) for each different cuts.
Balanced balance(std::span<const Cuttable> buffers, const Shares &shares, std::int64_t alignment);

}  // namespace vescomm::planner
