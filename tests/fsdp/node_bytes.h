// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The traffic between nodes that a recommendation is based on, for tests of the public interface:
// its class of specifications has the name of the engine's own.
#pragma once

#include <cstdint>
#include <string>

#include "vescomm/fsdp.h"

namespace vescomm::fsdp::testing {

// For `units` units with a matrix of `rows` x `columns` each, one micro-batch a step.
std::uint64_t node_bytes_of(const std::string &preset, const vescomm_fsdp_spec_options_t &options,
                            int ranks, int node_ranks, int units, std::int64_t rows,
                            std::int64_t columns);

}  // namespace vescomm::fsdp::testing
