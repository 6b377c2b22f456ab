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

// Buffers with the same tensors, to be cut. They need not be cut at the same places.
struct Cuttable {
    const Line *line = nullptr;
    std::int64_t element_bytes = 1;
    std::int64_t count = 1;  // buffers
    // Most elements that each rank may own of one buffer; possible(line, limits) holds.
    std::span<const std::int64_t> limits;
};

// Cuts that `count` buffers of one Cuttable share.
struct Cuts {
    std::vector<std::int64_t> cuts;  // ranks + 1
    std::int64_t count = 1;
};

struct Balanced {
    std::vector<std::vector<Cuts>> cuts;  // for each Cuttable; the counts add up to its own
    double largest_over_share = 1;  // of the bytes of all buffers that a rank owns
};

// Limit of the different cuts that balance() makes in addition to one for each Cuttable, in cuts
// times ranks. It bounds memory and time. Beyond it, buffers of one Cuttable share cuts.
constexpr std::int64_t max_balanced_cuts = std::int64_t{1} << 18;

// Cuts all buffers together, so that each rank's bytes of all buffers are as even as blocks allow,
// or follow its weight.
//
// Buffers are cut one after another, each where the sums come nearest to their targets. The error
// of a cut is then at most half a block of the last buffer, for any number of buffers, so the
// buffers with coarse blocks come first. Finally each buffer is cut again, as well as possible
// given all others.
//
// Cost: O(items + ranks) for each of the different cuts.
Balanced balance(std::span<const Cuttable> buffers, const Shares &shares, std::int64_t alignment);

}  // namespace vescomm::planner
