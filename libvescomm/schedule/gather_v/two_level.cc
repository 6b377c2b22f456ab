// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/common/staged.h"
#include "schedule/forwarded.h"
#include "schedule/rails.h"

namespace vescomm::internal::gather_v {

namespace {

// Flags that pass_blocks() does not use between these ranks. Flags for a node and flags for one
// rank of another node are separate.
enum Flag : std::uint32_t {
    clear_to_send = 0,  // for a rank of another node: the blocks of its node may be put
    packed =
        3,  // for the node: the block of this rank is in the staging buffer of the forwarding rank
    arrived = 3,  // raised by a put: the blocks of a node have arrived
};

}  // namespace

bool can_two_level(const ArrayProblem &problem) {
    return problem.nodes.count() > 1 && has_local_peers(problem.nodes) &&
           largest_forwarded(problem, problem.ranks()) > 0 &&
           common::can_pass_blocks(problem, beside_forwarded(problem, problem.ranks()));
}

// Two levels: the blocks of a node go to the root as one message. The ranks of the node copy them
// into the staging buffer of the root's rail peer, which puts them.
//
//     node A                                          node of the root
//     source 0 ─copy─► staging 1 ──both, one put──► staging 4 ─copy─► output 4
//     source 1 ─copy─►
//
// Blocks of more than a few kilobytes go straight to the root at the same time, as blocks of the
// root's node do (common/staged.h).
//
// Cost: one put for each other node, one pass over its small blocks there and one at the root, and
// one more wait within the node than without packing. Source: the two-level gathers of MPI
// libraries; Karonis et al., "Exploiting Hierarchy in Parallel Computer Networks to Optimize
// Collective Operation Performance", IPDPS 2000.
Schedule two_level(const ArrayProblem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const int root = problem.root, root_node = nodes.node_of(root), mine = nodes.node_of(rank);
    const std::int64_t max = largest_forwarded(problem, problem.ranks());

    // Small blocks lie densely, node after node, at the same offsets in the staging buffers of the
    // root and of the forwarding ranks.
    std::vector<Extent> of_node;
    std::int64_t end = problem.staging.begin;
    for (int node = 0; node < nodes.count(); ++node) {
        Extent &blocks = of_node.emplace_back(Extent{end, 0});
        for (const int peer : nodes.members(node))
            if (is_forwarded(problem, peer, root, max)) blocks.count += problem.size(peer);
        end += blocks.count;
    }
    const auto sender = [&](int node) { return rail_peer(nodes, node, root); };
    // Calls body(rank, offset) for each forwarded block of a node.
    const auto for_each_block = [&](int node, auto &&body) {
        std::int64_t at = of_node[static_cast<std::size_t>(node)].begin;
        for (const int peer : nodes.members(node)) {
            if (!is_forwarded(problem, peer, root, max)) continue;
            body(peer, at);
            at += problem.size(peer);
        }
    };

    Schedule schedule =
        common::pass_blocks(problem, rank, beside_forwarded(problem, problem.ranks()), max);
    if (rank == root) {
        std::vector<int> senders;
        for (int node = 0; node < nodes.count(); ++node)
            if (of_node[static_cast<std::size_t>(node)].count > 0) senders.push_back(sender(node));
        if (senders.empty()) return schedule;
        Lane &lane = schedule.lanes.emplace_back();
        lane.acquire();
        for (const int peer : senders) lane.signal(peer, clear_to_send, 1);
        for (const int peer : senders) {
            lane.wait(peer, arrived, 1);
            for_each_block(nodes.node_of(peer), [&](int from, std::int64_t at) {
                lane.copy({root, Region::staging, at}, problem.taken(from, root),
                          problem.size(from));
            });
        }
    }
    const Extent &blocks = of_node[static_cast<std::size_t>(mine)];
    if (mine == root_node || blocks.count == 0) return schedule;

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
    lane.wait(root, clear_to_send, 1);
    lane.put({rank, Region::staging, blocks.begin}, {root, Region::staging, blocks.begin},
             blocks.count, arrived, 1);
    return schedule;
}

}  // namespace vescomm::internal::gather_v
