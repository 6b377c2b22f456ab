// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"

namespace vescomm::internal::broadcast {

namespace {

enum Flag : std::uint32_t {
    held,  // the holder (the root, or the first rank of another node) has the data
    clear_to_send,  // for the parent: the buffer may be overwritten
    arrived,  // raised by a put: the data is in the receiver's buffer
    read,  // this rank has copied the data from the buffer of its node's holder
};

}  // namespace

// Tree: a binomial tree over nodes; then every rank copies from the holder of its node.
//
//     n0 ──► n1              phase 1        (node numbers relative to the root's node)
//     n0 ──► n2  n1 ──► n3   phase 2
//
// Cost: ceil(log2(nodes)) puts of the whole buffer one after another; every rank writes it once
// (every node, if the buffer is one slab for each node).
// Source: the binomial tree of MPICH (Thakur, Rabenseifner, Gropp, IJHPCA 19(1), 2005).
Schedule tree(const BufferProblem &problem, int rank) {
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
        // The number of the parent is that of this node without its highest bit.
        int bit = 1;
        while (bit * 2 <= relative) bit *= 2;
        const int parent = holder_of(relative - bit);
        local.signal(parent, clear_to_send, 1);
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
            lane.wait(child, clear_to_send, 1);
            lane.put(whole(rank), whole(child), size, arrived, 1);
        }
    }
    return schedule;
}

}  // namespace vescomm::internal::broadcast
