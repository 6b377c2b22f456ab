// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The algorithm of a request on a buffer, and its memory for partial sums. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/request_path.h"
#include "layout/layout.h"
#include "schedule/algorithms.h"
#include "simulate/select.h"
#include "topology/machine.h"

namespace vescomm::internal {

// True if contributions in a buffer have the type of partial sums and need no scaling.
bool contributions_are_sums(vescomm_type_t type, vescomm_op_t op);

// The collective on a buffer, and its variant on arrays that pass through the staging buffer.
// `type`: of the buffer; VESCOMM_TYPE_DEFAULT: a barrier, which has none. `forced`: an algorithm
// was asked for.
std::vector<AnyProblem> buffer_variants(const BufferProblem &problem, vescomm_type_t type,
                                        bool forced);

// The settings of reduce_scatter_v requests on buffers that need not exist.
struct SumSettings {
    Nodes nodes;
    Machine machine;
    bool in_order = false;  // as Problem::in_order
    bool in_place = true;  // as BufferProblem::in_place
    vescomm_type_t type = VESCOMM_F32;  // of the buffers
    vescomm_op_t op = VESCOMM_SUM;
    AlgorithmOverride forced = {};
};

// Returns the bytes of partial sums that a rank needs for the largest of the requests with these
// layouts, which share one memory.
//
// Cost: select() for the layouts that may need most.
std::uint64_t partial_bytes(const SumSettings &settings, std::span<const Layout *const> layouts);

}  // namespace vescomm::internal
