// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"

namespace vescomm::all_gather_v {

namespace {

enum Flag : std::uint32_t {
    held,  // value k + 1: I hold the k + 1 shards that end at my own
    ready,  // my buffer may be overwritten (told to a left neighbour on another node)
    arrived,  // a put: value k + 1 brings the shard that I receive in round k
    read,  // I have copied all I need from my left neighbour's buffer
};

}  // namespace

// Ring: every rank has a buffer of its own.
//
//     round k:   rank - 1 ──shard (rank - k - 1)──► rank ──shard (rank - k)──► rank + 1
//
// After round k a rank holds the k + 2 shards that end at its own, so ranks - 1 rounds complete it.
// A neighbour on the same node is copied from; one on another node is put to.
//
// Cost: ranks - 1 latencies one after another; a rank passes on every shard but the one that its
// right neighbour started with, which no link of a ring can undercut. Whole shards travel, so every
// round waits for the largest one that moves in it: best for large shards of one size.
// Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
// MPICH", IJHPCA 19(1), 2005; unequal blocks change the extents, not the pattern.
Schedule ring(const Problem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const int ranks = problem.ranks();
    const auto wrap = [ranks](int i) { return (i % ranks + ranks) % ranks; };
    const int left = wrap(rank - 1), right = wrap(rank + 1);
    const bool copies_from_left = nodes.together(left, rank);
    const bool puts_to_right = !nodes.together(rank, right);

    Schedule schedule;
    Lane &receive = schedule.lanes.emplace_back();
    if (!copies_from_left) receive.signal(left, ready, 1);
    if (!problem.in_place)
        receive.copy(problem.source(rank), problem.shard(rank, rank), problem.size(rank));
    receive.signal_node(held, 1);
    for (int k = 0; k < ranks - 1; ++k) {
        const std::uint32_t round = static_cast<std::uint32_t>(k) + 1;
        const int owner = wrap(rank - k - 1);
        if (copies_from_left) {
            receive.wait(left, held, round);
            receive.copy(problem.shard(left, owner), problem.shard(rank, owner),
                         problem.size(owner));
        } else {
            receive.wait(left, arrived, round);
        }
        receive.signal_node(held, round + 1);
    }
    if (ranks > 1 && copies_from_left) receive.signal_node(read, 1);
    if (ranks > 1 && !puts_to_right) receive.wait(right, read, 1);

    if (puts_to_right) {
        Lane &send = schedule.lanes.emplace_back();
        send.wait(right, ready, 1);
        for (int k = 0; k < ranks - 1; ++k) {
            const std::uint32_t round = static_cast<std::uint32_t>(k) + 1;
            const int owner = wrap(rank - k);
            send.wait(rank, held, round);
            send.put(problem.shard(rank, owner), problem.shard(right, owner), problem.size(owner),
                     arrived, round);
        }
    }
    return schedule;
}

}  // namespace vescomm::all_gather_v
