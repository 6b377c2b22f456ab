// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/all_reduce/phases.h"

namespace vescomm::all_reduce {

bool can_bruck(const Problem &problem) {
    const Phases phases(problem);
    return reduce_scatter_v::can_bruck(phases.scatter) && all_gather_v::can_bruck(phases.gather);
}

// Bruck: the sums for many nodes travel together until each rank has its share of the result, and
// then the shares of many nodes do (phases.h).
//
// Cost: 2 log2(nodes) rounds, rounded up; a node sends the vector about twice. Between doubling,
// which has half the rounds and more bytes, and two_phase, which has a message for every node.
// Source: Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004, on the rounds
// of reduce_scatter_v/bruck.cc and all_gather_v/bruck.cc, which need no power of two.
Schedule bruck(const Problem &problem, int rank) {
    const auto [scatter, gather] = Phases(problem);
    return then(rank, reduce_scatter_v::bruck(scatter, rank), all_gather_v::bruck(gather, rank));
}

}  // namespace vescomm::all_reduce
