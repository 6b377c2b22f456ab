// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The blocks in which the engine quantises parameters, read from its plan. The names of the
// engine's inside are those of its public interface, so a file sees one of the two.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "vescomm/fsdp.h"

namespace vescomm::fsdp::testing {

struct GatherParameter {
    std::size_t unit;
    std::string name;
    std::vector<std::int64_t> shape;
    std::int64_t block_rows;
    std::int64_t block_elements;
    std::int32_t batch_dimensions;
    vescomm_type_t gather_type;
};

// By parameter and element: the first element of its block, and the number of elements.
using GatherBlocks =
    std::map<std::pair<std::size_t, std::int64_t>, std::pair<std::int64_t, std::int64_t>>;

// Returns the blocks of a plan for a number of ranks. Checks that every block is on one rank and
// has one scale, and that codes and scales do not overlap.
GatherBlocks gather_blocks(const std::vector<GatherParameter> &parameters,
                           const vescomm_fsdp_spec_options_t &options, int ranks);

// Replaces values by what remains of them in codes with one scale.
void quantise_block(vescomm_type_t type, float *values, std::size_t count);

}  // namespace vescomm::fsdp::testing
