// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/all_reduce/phases.h"
#include "schedule/common/staged.h"

namespace vescomm::internal::all_reduce {

namespace {

// Number of nodes from which bruck is the faster all_gather_v, as simulated and as measured over
// TCP.
constexpr int many_nodes = 8;

}  // namespace

bool can_chain(const ArrayProblem &problem) {
    const Phases phases(problem);
    return reduce_scatter_v::can_chain(*phases.scatter.arrays()) &&
           common::can_pass_blocks(*phases.gather.arrays());
}

// Chain: running sums pass through the nodes in the order of ranks until each rank has its share of
// the result. An all_gather_v follows (phases.h): by bruck if there are many nodes and the vector
// fits the staging buffer.
//
// Cost: that of reduce_scatter_v/chain.cc and of an all_gather_v; a node sends the vector about
// twice.
// Source: as for the two phases.
Schedule chain(const ArrayProblem &problem, int rank) {
    const auto [scatter, gather] = Phases(problem);
    const bool many = problem.nodes.count() >= many_nodes && all_gather_v::can_bruck(gather);
    return join_schedules(
        rank, reduce_scatter_v::chain(*scatter.arrays(), rank),
        many ? all_gather_v::bruck(gather, rank) : common::pass_blocks(*gather.arrays(), rank));
}

}  // namespace vescomm::internal::all_reduce
