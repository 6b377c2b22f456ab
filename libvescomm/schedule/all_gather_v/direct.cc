// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/all_gather_v/between_nodes.h"
#include "schedule/fan_out.h"

namespace vescomm::internal::all_gather_v {

namespace {

enum Flag : std::uint32_t {
    written,  // the shard of this rank is in its buffer, and its local peers may write to it
    clear_to_send,  // for a sender on another node: the buffer may be overwritten
    arrived,  // raised by a put: the sender's shard is in the receiver's buffer
    full,  // this rank has written all its shards to its local peers
};

}  // namespace

// Direct: every rank has a buffer of its own, and the other ranks write into it.
//
//     node A                    node B
//     r0 ───copy───► r1         r2 ───copy───► r3    within a node every rank copies its shard into
//      └────────put────────────►┘                    all buffers, a chunk at a time; between nodes
//                                                    one rank of each node receives a shard, and
//                                                    copies it to its local peers.
//
// Cost: every rank writes its shards to each local peer, and reads only these from memory; with n
// nodes it sends n - 1 times its shard.
// Source: the one-copy all-gather that shared memory allows; unequal blocks only change extents.
// Ranks that read instead, as in `vescomm_perf --impl limit`, take longer for much data if they
// outnumber the cores, because each reads all data from memory (docs/performance.md).
Schedule direct(const BufferProblem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const auto members = nodes.members(nodes.node_of(rank));
    const int locals = static_cast<int>(members.size());
    Schedule schedule;
    Lane &local = schedule.lanes.emplace_back();

    const std::vector<int> senders = senders_through(problem, rank);
    clear_to_put(local, problem, rank, senders, clear_to_send);
    if (!problem.in_place)
        local.copy(problem.source(rank), problem.shard(rank, rank), problem.size(rank));
    local.signal_node(written, 1);
    for (const int peer : members)
        if (peer != rank) local.wait(peer, written, 1);

    // Every rank starts with a different receiver.
    const auto pass_on = [&](int owner) {
        std::vector<Place> to;
        for (int away = 1; away < locals; ++away)
            to.push_back(problem.shard(members[(nodes.local_rank(rank) + away) % locals], owner));
        fan_out(local, problem.shard(rank, owner), to, problem.size(owner));
    };
    pass_on(rank);
    // In the order of their arrival: a shard is copied while later ones arrive.
    for (const int sender : rotated_for(senders, rank)) {
        local.wait(sender, arrived, 1);
        pass_on(sender);
    }
    meet(local, nodes, rank, full);
    put_to_other_nodes(schedule, problem, rank, written, clear_to_send, arrived);
    return schedule;
}

}  // namespace vescomm::internal::all_gather_v
