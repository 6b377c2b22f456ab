// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/lanes.h"

namespace vescomm::all_gather_v {

namespace {

enum Flag : std::uint32_t {
    written,  // 1: my shard is in my node's slab; 2: so are those that arrive through me
    ready,  // my node's slab may be overwritten (told to the ranks that put into it)
    arrived,  // a put: the sender's shard is in the receiver's slab
};

// The ranks of other nodes that put something into this node's slab through `rank`.
std::vector<int> senders_through(const Problem &problem, int rank) {
    std::vector<int> senders;
    for (const int peer : lane_peers(problem.nodes, rank))
        if (problem.size(peer) > 0) senders.push_back(peer);
    return senders;
}

}  // namespace

// Slab: the buffer is one slab for each node.
//
//     node A              node B
//     r0 ─write─► slab A  slab B ◄─write─ r2        every rank writes its own shard once;
//     r1 ─write─►    │      ▲    ◄─write─ r3        r0 puts its shard into slab B through r2,
//                    └─put──┘                       r1 through r3, and so on, both ways.
//
// On one node that is a write and a wake-up: bytes moved are the buffer's size, once, however many
// ranks there are. Between nodes every shard crosses once for each other node, the least possible,
// and every rank carries its own.
//
// Cost: 1 signal in a node; with n nodes a rank sends n - 1 times its shard.
// Source: the slab is vescomm's own; one rank of each node for each sender ("rails") as in NCCL.
Schedule slab(const Problem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const int node = nodes.node_of(rank);
    Schedule schedule;
    Lane &local = schedule.lanes.emplace_back();

    local.acquire();
    const std::vector<int> senders = senders_through(problem, rank);
    for (const int sender : in_turn_for(senders, rank))
        local.signal(sender, ready, 1, comes_early(problem, sender, rank, problem.size(sender)));
    if (!problem.in_place)
        local.copy(problem.source(rank), problem.shard(rank, rank), problem.size(rank));
    local.signal_node(written, 1);

    for (const int sender : senders) local.wait(sender, arrived, 1);
    if (!senders.empty()) local.signal_node(written, 2);
    for (const int peer : nodes.members(node))
        if (peer != rank) local.wait(peer, written, senders_through(problem, peer).empty() ? 1 : 2);

    // A lane for each other node, so that one that is not ready does not hold up the others.
    for (int away = 1; away < nodes.count() && problem.size(rank) > 0; ++away) {
        const int to = lane_rank(nodes, (node + away) % nodes.count(), rank);
        Lane &lane = schedule.lanes.emplace_back();
        lane.wait(rank, written, 1);
        lane.wait(to, ready, 1, comes_early(problem, rank, to, problem.size(rank)));
        lane.put(problem.shard(rank, rank), problem.shard(to, rank), problem.size(rank), arrived,
                 1);
    }
    return schedule;
}

}  // namespace vescomm::all_gather_v
