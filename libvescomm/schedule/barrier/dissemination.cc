// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"

namespace vescomm::barrier {

namespace {

enum Flag : std::uint32_t {
    here,  // I have come
    round,  // value k: between first ranks of nodes, round k
    open,  // everyone has come (told by the first rank of a node)
};

}  // namespace

// Dissemination: ranks of a node see one another's flags at once; the first ranks of n nodes tell
// the one 1, 2, 4, ... nodes further on, after which each has heard of all.
//
// Cost: 1 signal in a node; between nodes ceil(log2(n)) rounds, and 1 more signal in each node.
// Source: Hensgen, Finkel, Manber, "Two Algorithms for Barrier Synchronization", IJPP 17(1), 1988.
Schedule dissemination(const Problem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const int count = nodes.count();
    const int node = nodes.node_of(rank);
    const auto members = nodes.members(node);

    Schedule schedule;
    Lane &lane = schedule.lanes.emplace_back();
    const bool first = rank == members[0];
    if (count == 1 || !first) lane.signal_node(here, 1);
    if (count > 1 && !first) {
        lane.wait(members[0], open, 1);
        return schedule;
    }
    for (const int peer : members)
        if (peer != rank) lane.wait(peer, here, 1);

    std::uint32_t k = 1;
    for (int away = 1; away < count; away *= 2, ++k) {
        lane.signal(nodes.members((node + away) % count)[0], round, k);
        lane.wait(nodes.members((node - away + count) % count)[0], round, k);
    }
    if (count > 1) lane.signal_node(open, 1);
    return schedule;
}

}  // namespace vescomm::barrier
