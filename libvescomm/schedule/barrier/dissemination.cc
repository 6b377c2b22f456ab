// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"

namespace vescomm::internal::barrier {

namespace {

enum Flag : std::uint32_t {
    entered,  // this rank has entered the barrier
    phase,  // value k: phase k, between the first ranks of nodes
    complete,  // raised by the first rank of a node: all ranks have entered
};

}  // namespace

// Dissemination: the ranks of a node signal each other. The first ranks of n nodes signal the node
// at distance 1, 2, 4, ...; after that each knows that all ranks have entered.
//
// Cost: 1 signal in a node; between nodes ceil(log2(n)) phases, and 1 more signal in each node.
// Source: Hensgen, Finkel, Manber, "Two Algorithms for Barrier Synchronization", IJPP 17(1), 1988.
Schedule dissemination(const AnyProblem &problem, int rank) {
    const Nodes &nodes = problem->nodes;
    const int count = nodes.count();
    const int node = nodes.node_of(rank);
    const auto members = nodes.members(node);

    Schedule schedule;
    Lane &lane = schedule.lanes.emplace_back();
    const bool first = rank == members[0];
    if (count == 1 || !first) lane.signal_node(entered, 1);
    if (count > 1 && !first) {
        lane.wait(members[0], complete, 1);
        return schedule;
    }
    for (const int peer : members)
        if (peer != rank) lane.wait(peer, entered, 1);

    std::uint32_t k = 1;
    for (int away = 1; away < count; away *= 2, ++k) {
        lane.signal(nodes.members((node + away) % count)[0], phase, k);
        lane.wait(nodes.members((node - away + count) % count)[0], phase, k);
    }
    if (count > 1) lane.signal_node(complete, 1);
    return schedule;
}

}  // namespace vescomm::internal::barrier
