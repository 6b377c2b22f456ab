// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/all_gather_v/between_nodes.h"

namespace vescomm::internal::all_gather_v {

namespace {

enum Flag : std::uint32_t {
    written,  // 1: the shard of this rank is in its slab; 2: the shards put by its rail peers too
    clear_to_send,  // for a sender on another node: the slab may be overwritten
    arrived,  // raised by a put: the sender's shard is in the receiver's slab
};

}  // namespace

// Slab: the buffer is one slab for each node.
//
//     node A              node B
//     r0 ─write─► slab A  slab B ◄─write─ r2        every rank writes its own shard once;
//     r1 ─write─►    │      ▲    ◄─write─ r3        r0 puts its shard into slab B through r2,
//                    └─put──┘                       r1 through r3, and so on, both ways.
//
// On one node this is one write and one wake-up: the bytes moved are the size of the buffer, for
// any number of ranks. Between nodes every shard goes once to each other node, which is the
// minimum, and every rank puts its own.
//
// Cost: 1 signal in a node; with n nodes a rank sends n - 1 times its shard.
// Source: the slab is vescomm's own; rail peers as in NCCL.
Schedule slab(const BufferProblem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    Schedule schedule;
    Lane &local = schedule.lanes.emplace_back();

    local.acquire();
    const std::vector<int> senders = senders_through(problem, rank);
    clear_to_put(local, problem, rank, senders, clear_to_send);
    if (!problem.in_place)
        local.copy(problem.source(rank), problem.shard(rank, rank), problem.size(rank));
    local.signal_node(written, 1);

    for (const int sender : senders) local.wait(sender, arrived, 1);
    if (!senders.empty()) local.signal_node(written, 2);
    for (const int peer : nodes.members(nodes.node_of(rank)))
        if (peer != rank) local.wait(peer, written, senders_through(problem, peer).empty() ? 1 : 2);
    put_to_other_nodes(schedule, problem, rank, written, clear_to_send, arrived);
    return schedule;
}

}  // namespace vescomm::internal::all_gather_v
