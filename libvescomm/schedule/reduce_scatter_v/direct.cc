// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/lanes.h"

namespace vescomm::reduce_scatter_v {

namespace {

enum Flag : std::uint32_t {
    filled,  // my buffer holds my contribution
    read,  // I have read all I need from the buffers of my node
    ready,  // my partial sums may be overwritten (told to the ranks that put into it)
    partial,  // value i, to myself: my first i partial sums are there
    arrived,  // a put: the sender's partial sum is among the receiver's
};

}  // namespace

// Direct: every rank sums its own shard straight out of everyone's buffer, in one pass.
//
//     node A                          node B
//     buffer 0 ─┐                     buffer 2 ─┐
//     buffer 1 ─┴─sum─► output 0      buffer 3 ─┴─sum─► partial ─put─► partial of r0 ─► output 0
//
// On one node nothing is staged: each element is read once from every buffer and written once. For
// a rank on another node, the node's ranks share the work of summing what it needs (each for the
// ranks in its own place), and send one partial sum in f32.
//
// Cost: with m ranks on a node each reads m times its shard and writes it once; with n nodes it
// also sums and sends n - 1 shards (more where nodes differ in size). Source: the one-pass
// reduction that shared memory allows; hierarchical form as in UCC's CL/HIER, but with every rank
// of a node at work instead of a leader.
Schedule direct(const Problem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const int node = nodes.node_of(rank);
    const auto members = nodes.members(node);
    const auto buffers_at = [&](int owner) {
        std::vector<Place> places;
        for (const int member : members) places.push_back(problem.shard(member, owner));
        return places;
    };

    Schedule schedule;
    schedule.lanes.emplace_back();
    const auto local = [&schedule]() -> Lane & { return schedule.lanes.front(); };

    // Partial sums: first a slot for each other node's partial sum of my shard, in node order, then
    // the partial sums that I make for others.
    std::vector<Place> arrivals;
    std::vector<int> partners;
    if (problem.size(rank) > 0) {
        for (int other = 0; other < nodes.count(); ++other) {
            if (other == node) continue;
            arrivals.push_back({rank, Region::partial, schedule.partial});
            partners.push_back(lane_rank(nodes, other, rank));
            schedule.partial += problem.size(rank);
        }
    }
    for (const int partner : in_turn_for(partners, rank))
        local().signal(partner, ready, 1, comes_early(problem, partner, rank, problem.size(rank)));
    if (members.size() > 1) local().signal_node(filled, 1);
    for (const int peer : members)
        if (peer != rank) local().wait(peer, filled, 1);

    std::uint32_t partials = 0;
    for (const int peer : in_turn(lane_peers(nodes, rank), rank)) {
        const std::int64_t count = problem.size(peer);
        if (count == 0) continue;
        const Place sum{rank, Region::partial, schedule.partial};
        schedule.partial += count;
        local().reduce(buffers_at(peer), sum, count, false);
        local().signal_node(partial, ++partials);

        // The peer keeps its slots in node order, without its own node.
        const int slot = node - (node > nodes.node_of(peer) ? 1 : 0);
        Lane lane;
        lane.wait(rank, partial, partials);
        lane.wait(peer, ready, 1, comes_early(problem, rank, peer, count));
        lane.put(sum, {peer, Region::partial, slot * count}, count, arrived, 1);
        schedule.lanes.push_back(std::move(lane));
    }

    std::vector<Place> from = buffers_at(rank);
    for (std::size_t i = 0; i < arrivals.size(); ++i) {
        local().wait(partners[i], arrived, 1);
        from.push_back(arrivals[i]);
    }
    local().reduce(std::move(from), problem.output(rank), problem.size(rank), true);
    if (members.size() > 1) local().signal_node(read, 1);
    for (const int peer : members)
        if (peer != rank) local().wait(peer, read, 1);
    return schedule;
}

}  // namespace vescomm::reduce_scatter_v
