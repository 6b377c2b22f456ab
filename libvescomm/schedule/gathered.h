// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/problem.h"

namespace vescomm {

// Gathered: everyone gets all contributions and sums what he wants, in the order of ranks.
//
//     source 0 ─┐                          ┌─ 0 + 1 + 2 + 3 ─► output 0
//     source 1 ─┤                          ├─ 0 + 1 + 2 + 3 ─► output 1
//     source 2 ─┼─► stages of all nodes ───┤
//     source 3 ─┘                          └─ ...
//
// The contributions are gathered as the shards of an all_gather_v by bruck.
//
// Cost: log2(nodes) rounds, rounded up, in which a node sends every other node's contributions
// once, whole: best while latencies cost more than bytes, where the order of ranks must be kept.
// Source: all_gather_v/bruck.cc; Open MPI's linear all_reduce, which keeps the order too, gathers
// at one rank.
Schedule gathered(const Problem &problem, int rank);
bool can_be_gathered(const Problem &problem);

}  // namespace vescomm
