// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/all_reduce/phases.h"

namespace vescomm::internal::all_reduce {

bool can_bruck(const AnyProblem &problem) {
    const Phases phases(problem);
    return reduce_scatter_v::can_bruck(phases.scatter) && all_gather_v::can_bruck(phases.gather);
}

// Bruck: a reduce_scatter_v, then an all_gather_v, both by bruck (phases.h). Each message carries
// the sums for many nodes, and then the shares of many nodes.
//
// Cost: 2 ceil(log2(nodes)) phases; a node sends the vector about twice. This is between doubling,
// which has half the phases and more bytes, and two_phase, which has one message for every node.
// Source: Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004, with the
// phases of reduce_scatter_v/bruck.cc and all_gather_v/bruck.cc, which need no power of two.
Schedule bruck(const AnyProblem &problem, int rank) {
    const auto [scatter, gather] = Phases(problem);
    return join_schedules(rank, reduce_scatter_v::bruck(scatter, rank),
                          all_gather_v::bruck(gather, rank));
}

}  // namespace vescomm::internal::all_reduce
