// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/problem.h"

namespace vescomm::internal::common {

// Gathered: every rank gets all contributions and sums its result, in the order of ranks.
//
//     source 0 ─┐                           ┌─ 0 + 1 + 2 + 3 ─► output 0
//     source 1 ─┤    staging buffers of     ├─ 0 + 1 + 2 + 3 ─► output 1
//     source 2 ─┼─►  all nodes           ───┤
//     source 3 ─┘                           └─ ...
//
// An all_gather_v by bruck gathers the contributions as its shards.
//
// Cost: ceil(log2(nodes)) phases, in which a node sends the whole contributions of every other node
// once. Best while latencies cost more than bytes, if the order of ranks must be kept.
// Source: all_gather_v/bruck.cc; Open MPI's linear all_reduce, which also keeps the order, but
// gathers at one rank.
Schedule gathered(const ArrayProblem &problem, int rank);
bool can_be_gathered(const ArrayProblem &problem);

}  // namespace vescomm::internal::common
