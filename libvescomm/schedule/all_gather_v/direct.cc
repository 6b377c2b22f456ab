// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/lanes.h"

namespace vescomm::all_gather_v {

namespace {

enum Flag : std::uint32_t {
    written,  // my shard is in my buffer
    ready,  // my buffer may be overwritten (told to the ranks that put into it)
    arrived,  // a put: the sender's shard is in the receiver's buffer
    relayed,  // value i: the first i shards that arrive through me are in my buffer
    read,  // I have copied all I need from the buffers of my node
};

}  // namespace

// Direct: every rank has a buffer of its own.
//
//     node A                    node B
//     r0 ◄──copy──► r1          r2 ◄──copy──► r3     within a node everyone copies the others'
//      └────────put────────────►┘                    shards straight out of their buffers; between
//                                                    nodes one rank of each node receives a shard,
//                                                    and its neighbours copy it from there.
//
// Cost: every rank writes the buffer once; with n nodes it sends n - 1 times its shard.
// Source: the one-copy all-gather that shared memory allows; unequal blocks only change extents.
Schedule direct(const Problem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const int node = nodes.node_of(rank);
    const auto members = nodes.members(node);
    const int locals = static_cast<int>(members.size());
    Schedule schedule;
    Lane &local = schedule.lanes.emplace_back();

    const std::vector<int> senders = lane_peers(nodes, rank);
    for (const int sender : in_turn_for(senders, rank))
        if (problem.size(sender) > 0)
            local.signal(sender, ready, 1,
                         comes_early(problem, sender, rank, problem.size(sender)));
    if (!problem.in_place)
        local.copy(problem.source(rank), problem.shard(rank, rank), problem.size(rank));
    local.signal_node(written, 1);

    // Each starts with its right neighbour: no two ranks read the same shard at first.
    const auto neighbour = [&](int away) {
        return members[(nodes.local_rank(rank) + away) % locals];
    };
    for (int away = 1; away < locals; ++away) {
        const int peer = neighbour(away);
        local.wait(peer, written, 1);
        local.copy(problem.shard(peer, peer), problem.shard(rank, peer), problem.size(peer));
    }

    // What other nodes put here, the neighbours copy from here.
    std::uint32_t count = 0;
    for (const int sender : senders) {
        if (problem.size(sender) == 0) continue;
        local.wait(sender, arrived, 1);
        if (locals > 1) local.signal_node(relayed, ++count);
    }
    for (int away = 1; away < locals && nodes.count() > 1; ++away) {
        const int peer = neighbour(away);
        std::uint32_t relays = 0;
        for (const int sender : lane_peers(nodes, peer)) {
            if (problem.size(sender) == 0) continue;
            local.wait(peer, relayed, ++relays);
            local.copy(problem.shard(peer, sender), problem.shard(rank, sender),
                       problem.size(sender));
        }
    }
    if (locals > 1) local.signal_node(read, 1);
    for (const int peer : members)
        if (peer != rank) local.wait(peer, read, 1);

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
