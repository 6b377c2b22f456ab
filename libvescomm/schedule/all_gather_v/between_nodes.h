// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedule/rails.h"

namespace vescomm::internal::all_gather_v {

// The steps between nodes of slab.cc and direct.cc: every shard goes directly to every other node,
// through one rank of it.

// Ranks of other nodes that put a shard into the memory of `rank`, for its node.
inline std::vector<int> senders_through(const Problem &problem, int rank) {
    std::vector<int> senders = rail_peers(problem.nodes, rank);
    std::erase_if(senders, [&](int sender) { return problem.size(sender) == 0; });
    return senders;
}

// Signals the senders that they may put.
inline void clear_to_put(Lane &lane, const Problem &problem, int rank,
                         const std::vector<int> &senders, std::uint32_t clear_to_send) {
    for (const int sender : rotated_for(senders, rank))
        lane.signal(sender, clear_to_send, 1,
                    is_eager(problem, sender, rank, problem.size(sender)));
}

// Puts the shard of this rank, after this rank has raised `written`. Each other node has its own
// lane, so that a node that is not ready does not delay the others.
inline void put_to_other_nodes(Schedule &schedule, const BufferProblem &problem, int rank,
                               std::uint32_t written, std::uint32_t clear_to_send,
                               std::uint32_t arrived) {
    const Nodes &nodes = problem.nodes;
    const std::int64_t size = problem.size(rank);
    for (int away = 1; away < nodes.count() && size > 0; ++away) {
        const int to = rail_peer(nodes, (nodes.node_of(rank) + away) % nodes.count(), rank);
        Lane &lane = schedule.lanes.emplace_back();
        lane.wait(rank, written, 1);
        lane.wait(to, clear_to_send, 1, is_eager(problem, rank, to, size));
        lane.put(problem.shard(rank, rank), problem.shard(to, rank), size, arrived, 1);
    }
}

}  // namespace vescomm::internal::all_gather_v
