// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/common/gathered.h"

#include "schedule/algorithms.h"
#include "schedule/all_gather_v/bruck.h"
#include "schedule/common/inline.h"

namespace vescomm::internal::common {

namespace {

// The all_gather_v of all contributions, one after another.
AnyProblem gathering(const ArrayProblem &problem) {
    ArrayProblem gather = problem;
    gather.collective = Collective::all_gather_v;
    for (int rank = 0; rank <= problem.ranks(); ++rank)
        gather.cuts[static_cast<std::size_t>(rank)] = rank * problem.elements();
    return gather;
}

}  // namespace

bool can_be_gathered(const ArrayProblem &problem) {
    return problem.in_order && !problem.is_phase &&
           problem.ranks() * problem.elements() <= problem.staging.count / 4 &&
           all_gather_v::can_bruck(gathering(problem));
}

Schedule gathered(const ArrayProblem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const AnyProblem gather = gathering(problem);
    Schedule schedule = all_gather_v::gather_on_nodes(gather, rank);
    const Extent result = result_of(problem, rank);
    if (result.count == 0) return schedule;
    std::vector<Place> from;
    const Place first =
        all_gather_v::gathered_on_node(gather, nodes.members(nodes.node_of(rank))[0]);
    for (int peer = 0; peer < problem.ranks(); ++peer)
        from.push_back(later(first, gather->begin(peer) + result.begin));
    schedule.lanes.back().reduce(from, {rank, Region::output, 0}, result.count, true);
    return schedule;
}

}  // namespace vescomm::internal::common
