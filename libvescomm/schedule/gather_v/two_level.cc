// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/rails.h"
#include "schedule/staged_blocks.h"

namespace vescomm::gather_v {

namespace {

// Those of pass_blocks() that it has no use for: what a rank tells to other nodes is apart from
// what it tells to its own.
enum Flag : std::uint32_t {
    ready = 0,  // to another node: my stage has room for what your node has
    packed = 3,  // to my node: my block is in the staging buffer of the one who sends it
    arrived = 3,  // a put, which brings what a node has
};

}  // namespace

bool can_two_level(const Problem &problem) {
    return problem.arrays && problem.nodes.count() > 1 && has_local_peers(problem.nodes) &&
           largest_forwarded(problem, problem.ranks()) > 0 &&
           can_pass_blocks(problem, beside_forwarded(problem, problem.ranks()));
}

// Two levels: the blocks of a node go to the root as one message. Its ranks copy them into the
// stage of the one in the root's place, which puts them.
//
//     node A                                       node of the root
//     source 0 ─copy─► stage 1 ──both, one put──► stage 4 ─copy─► output 4
//     source 1 ─copy─►
//
// Blocks of more than a few kilobytes go straight to the root meanwhile, as those of its own node
// do (staged_blocks.h).
//
// Cost: one put for each other node, a pass over its small blocks there and one at the root, and
// one wait within the node more than without packing. Source: the two-level gathers of MPI
// libraries; Karonis et al., "Exploiting Hierarchy in Parallel Computer Networks to Optimize
// Collective Operation Performance", IPDPS 2000.
Schedule two_level(const Problem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const int root = problem.root, intra_node = nodes.node_of(root), mine = nodes.node_of(rank);
    const std::int64_t max = largest_forwarded(problem, problem.ranks());

    // Small blocks lie densely, node after node, in the stages of those who send them and of the
    // root.
    std::vector<Extent> of_node;
    std::int64_t end = problem.staging.begin;
    for (int node = 0; node < nodes.count(); ++node) {
        Extent &blocks = of_node.emplace_back(Extent{end, 0});
        for (const int peer : nodes.members(node))
            if (is_forwarded(problem, peer, root, max)) blocks.count += problem.size(peer);
        end += blocks.count;
    }
    const auto sender = [&](int node) { return rail_peer(nodes, node, root); };
    // Each block with its place, which is the same at both.
    const auto for_each_block = [&](int node, auto &&body) {
        std::int64_t at = of_node[static_cast<std::size_t>(node)].begin;
        for (const int peer : nodes.members(node)) {
            if (!is_forwarded(problem, peer, root, max)) continue;
            body(peer, at);
            at += problem.size(peer);
        }
    };

    Schedule schedule = pass_blocks(problem, rank, beside_forwarded(problem, problem.ranks()), max);
    if (rank == root) {
        std::vector<int> senders;
        for (int node = 0; node < nodes.count(); ++node)
            if (of_node[static_cast<std::size_t>(node)].count > 0)
                senders.push_back(sender(node));
        if (senders.empty()) return schedule;
        Lane &lane = schedule.lanes.emplace_back();
        lane.acquire();
        for (const int peer : senders) lane.signal(peer, ready, 1);
        for (const int peer : senders) {
            lane.wait(peer, arrived, 1);
            for_each_block(nodes.node_of(peer), [&](int from, std::int64_t at) {
                lane.copy({root, Region::staging, at}, problem.taken(from, root),
                          problem.size(from));
            });
        }
    }
    const Extent &blocks = of_node[static_cast<std::size_t>(mine)];
    if (mine == intra_node || blocks.count == 0) return schedule;

    const int through = sender(mine);
    const bool packs = is_forwarded(problem, rank, root, max);
    if (!packs && rank != through) return schedule;
    Lane &lane = schedule.lanes.emplace_back();
    lane.acquire();
    for_each_block(mine, [&](int peer, std::int64_t at) {
        if (peer == rank)
            lane.copy(problem.given(rank, root), {through, Region::staging, at},
                      problem.size(rank));
    });
    if (rank != through) {
        lane.signal_node(packed, 1);
        return schedule;
    }
    for_each_block(mine, [&](int peer, std::int64_t) {
        if (peer != rank) lane.wait(peer, packed, 1);
    });
    lane.wait(root, ready, 1);
    lane.put({rank, Region::staging, blocks.begin}, {root, Region::staging, blocks.begin},
             blocks.count, arrived, 1);
    return schedule;
}

}  // namespace vescomm::gather_v
