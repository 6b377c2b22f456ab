// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"

namespace vescomm::broadcast {

namespace {

enum Flag : std::uint32_t {
    held,  // I hold the data (the root, or the first rank of another node)
    ready,  // my buffer may be overwritten (told to the rank that puts into it)
    arrived,  // a put: the data is in the receiver's buffer
    read,  // I have copied the data from the buffer of my node's first holder
};

}  // namespace

// Tree: a binomial tree over nodes, then everyone copies from the one of their node who holds it.
//
//     n0 ──► n1          round 1        (node numbers relative to the root's node)
//     n0 ──► n2  n1 ──► n3   round 2
//
// Cost: ceil(log2(nodes)) puts of the whole buffer one after another; every rank writes it once
// (every node, when the buffer is one slab for each node).
// Source: the binomial tree of MPICH (Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005).
Schedule tree(const Problem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const int count = nodes.count();
    const int node = nodes.node_of(rank);
    const int root_node = nodes.node_of(problem.root);
    const auto holder_of = [&](int relative) {
        const int absolute = (relative + root_node) % count;
        return absolute == root_node ? problem.root : nodes.members(absolute)[0];
    };
    const int relative = (node - root_node + count) % count;
    const int holder = holder_of(relative);
    const std::int64_t size = problem.elements();
    const auto whole = [](int r) { return Place{r, Region::buffer, 0}; };

    Schedule schedule;
    Lane &local = schedule.lanes.emplace_back();
    if (problem.per_node) local.acquire();

    if (rank == holder && relative > 0) {
        // The parent lacks my highest bit.
        int bit = 1;
        while (bit * 2 <= relative) bit *= 2;
        const int parent = holder_of(relative - bit);
        local.signal(parent, ready, 1);
        local.wait(parent, arrived, 1);
    }
    if (rank == holder) {
        local.signal_node(held, 1);
    } else {
        local.wait(holder, held, 1);
        if (!problem.per_node) local.copy(whole(holder), whole(rank), size);
    }
    if (!problem.per_node && rank != holder) local.signal_node(read, 1);
    for (const int peer : nodes.members(node))
        if (!problem.per_node && rank == holder && peer != rank) local.wait(peer, read, 1);

    if (rank == holder) {
        int bit = 1;
        while (bit <= relative) bit *= 2;
        for (; relative + bit < count; bit *= 2) {
            const int child = holder_of(relative + bit);
            Lane &lane = schedule.lanes.emplace_back();
            lane.wait(rank, held, 1);
            lane.wait(child, ready, 1);
            lane.put(whole(rank), whole(child), size, arrived, 1);
        }
    }
    return schedule;
}

}  // namespace vescomm::broadcast
