// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/all_gather_v/between_nodes.h"
#include "schedule/fan_out.h"

namespace vescomm::all_gather_v {

namespace {

enum Flag : std::uint32_t {
    written,  // my shard is in my buffer, and my neighbours may write theirs to it
    ready,  // my buffer may be overwritten (told to the ranks that put into it)
    arrived,  // a put: the sender's shard is in the receiver's buffer
    full,  // my neighbours have all that they get from me
};

}  // namespace

// Direct: every rank has a buffer of its own, and the others write into it.
//
//     node A                    node B
//     r0 ───copy───► r1         r2 ───copy───► r3    within a node everyone copies its shard into
//      └────────put────────────►┘                    all buffers, a chunk at a time; between nodes
//                                                    one rank of each node receives a shard, and
//                                                    passes it on to its neighbours.
//
// Cost: every rank writes the buffer of each neighbour once, in parts, and reads from memory only
// what it passes on; with n nodes it sends n - 1 times its shard.
// Source: the one-copy all-gather that shared memory allows; unequal blocks only change extents.
// Readers, as those of `vescomm_perf --impl limit`, take longer with more ranks than cores and much
// data: each reads everything from memory (docs/performance.md).
Schedule direct(const Problem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const auto members = nodes.members(nodes.node_of(rank));
    const int locals = static_cast<int>(members.size());
    Schedule schedule;
    Lane &local = schedule.lanes.emplace_back();

    const std::vector<int> senders = senders_through(problem, rank);
    let_put(local, problem, rank, senders, ready);
    if (!problem.in_place)
        local.copy(problem.source(rank), problem.shard(rank, rank), problem.size(rank));
    local.signal_node(written, 1);
    for (const int peer : members)
        if (peer != rank) local.wait(peer, written, 1);

    // Each starts with its right neighbour: no two ranks write to the same one at first.
    const auto pass_on = [&](int owner) {
        std::vector<Place> to;
        for (int away = 1; away < locals; ++away)
            to.push_back(problem.shard(members[(nodes.local_rank(rank) + away) % locals], owner));
        fan_out(local, problem.shard(rank, owner), to, problem.size(owner));
    };
    pass_on(rank);
    for (const int sender : senders) {
        local.wait(sender, arrived, 1);
        pass_on(sender);
    }
    meet(local, nodes, rank, full);
    put_to_other_nodes(schedule, problem, rank, written, ready, arrived);
    return schedule;
}

}  // namespace vescomm::all_gather_v
