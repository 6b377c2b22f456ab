// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/rails.h"

namespace vescomm::reduce_scatter_v {

namespace {

enum Flag : std::uint32_t {
    filled,  // my buffer holds my contribution
    read,  // I have read all I need from the buffers of my node
    ready,  // value k + 1: the first k chunks of my partial sums may be overwritten (told to the
            // ranks that put into them)
    partial,  // value i, to myself: my first i chunks of partial sums are there
    arrived,  // a put: value k + 1 brings chunk k of the sender's partial sum
};

// The part of a shard that begins so many elements later, in the buffers of all ranks of a node.
std::vector<Place> in_buffers(const Problem &problem, std::span<const int> members, int owner,
                              std::int64_t elements) {
    std::vector<Place> places;
    for (const int member : members)
        places.push_back(later(problem.shard(member, owner), elements));
    return places;
}

// Adds the lanes that sum, and put, what this rank handles for ranks of other nodes. Returns how
// many chunks of partial sums there are.
std::uint32_t send_partial_sums(const Problem &problem, int rank, Schedule &schedule) {
    const Nodes &nodes = problem.nodes;
    const int node = nodes.node_of(rank);
    const auto members = nodes.members(node);
    // Who is alone on its node has nothing to add to its own contribution.
    const bool sends_its_own = members.size() == 1 && problem.plain_sums;

    struct Partner {
        int rank;
        PutChunks chunks;
        Place from;
        Lane puts;
    };
    std::vector<Partner> partners;
    std::uint32_t max_chunks = 0;
    for (const int peer : rotated_after(rail_peers(nodes, rank), rank)) {
        const std::int64_t count = problem.size(peer);
        if (count == 0) continue;
        const Place sum{rank, Region::partial, schedule.partial};
        const PutChunks chunks(count);
        if (!sends_its_own) schedule.partial += chunks.room();
        partners.push_back({peer, chunks, sends_its_own ? problem.shard(rank, peer) : sum, {}});
        max_chunks = std::max(max_chunks, partners.back().chunks.number());
    }

    Lane sums;
    for (const int peer : members)
        if (peer != rank) sums.wait(peer, filled, 1);
    std::uint32_t partials = 0;
    // A chunk for each in turn, so that every link has something to carry.
    for (std::uint32_t k = 0; k < max_chunks; ++k) {
        for (auto &[peer, chunks, from, puts] : partners) {
            if (k >= chunks.number()) continue;
            const std::int64_t begin = chunks.begin(k), count = chunks.elements(k);
            const std::uint32_t may_overwrite = 1 + chunks.read_before(k);
            Place place = later(from, begin);
            if (!sends_its_own) {
                place = later(from, chunks.place(k));
                if (k >= PutChunks::ring) sums.wait(peer, ready, may_overwrite);
                sums.reduce(in_buffers(problem, members, peer, begin), place, count, false);
                sums.signal_node(partial, ++partials);
                puts.wait(rank, partial, partials);
            }
            puts.wait(peer, ready, may_overwrite,
                      k == 0 && is_eager(problem, rank, peer, chunks.count));
            // The peer keeps its slots in node order, without its own node.
            const int slot = node - (node > nodes.node_of(peer) ? 1 : 0);
            puts.put(place, {peer, Region::partial, slot * chunks.room() + chunks.place(k)}, count,
                     arrived, k + 1);
        }
    }
    if (partials > 0) schedule.lanes.push_back(std::move(sums));
    for (Partner &partner : partners) schedule.lanes.push_back(std::move(partner.puts));
    return partials;
}

}  // namespace

// Direct: every rank sums its own shard straight out of everyone's buffer, in one pass.
//
//     node A                          node B
//     buffer 0 ─┐                     buffer 2 ─┐
//     buffer 1 ─┴─sum─► output 0      buffer 3 ─┴─sum─► partial ─put─► partial of r0 ─► output 0
//
// On one node nothing is staged: each element is read once from every buffer and written once. For
// a rank on another node, the node's ranks share the work of summing what it needs (each for the
// ranks in its own place), and send one partial sum in f32, chunk by chunk (rails.h): one is
// summed while others are sent and received. A rank that is alone on its node puts its contribution
// as it is, where that is of the type of sums.
//
// Cost: with m ranks on a node each reads m times its shard and writes it once; with n nodes it
// also sums and sends n - 1 shards (more where nodes differ in size). Source: the one-pass
// reduction that shared memory allows; hierarchical form as in UCC's CL/HIER, but with every rank
// of a node at work instead of a leader.
Schedule direct(const Problem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const int node = nodes.node_of(rank);
    const auto members = nodes.members(node);
    const std::int64_t size = problem.size(rank);
    const PutChunks chunks(size);
    Schedule schedule;
    schedule.lanes.resize(1);

    // Partial sums: first a slot for each other node's partial sum of my shard, in node order, then
    // the partial sums that I make for others.
    std::vector<Place> arrivals;
    std::vector<int> partners;
    for (int other = 0; other < nodes.count() && size > 0; ++other) {
        if (other == node) continue;
        arrivals.push_back({rank, Region::partial, schedule.partial});
        partners.push_back(rail_peer(nodes, other, rank));
        schedule.partial += chunks.room();
    }
    const std::uint32_t partials = send_partial_sums(problem, rank, schedule);

    Lane &local = schedule.lanes.front();
    for (const int partner : rotated_for(partners, rank))
        local.signal(partner, ready, 1, is_eager(problem, partner, rank, size));
    meet(local, nodes, rank, filled);

    const std::uint32_t parts = arrivals.empty() ? 1 : chunks.number();
    for (std::uint32_t k = 0; k < parts; ++k) {
        const std::int64_t begin = chunks.begin(k);
        std::vector<Place> from = in_buffers(problem, members, rank, begin);
        for (std::size_t i = 0; i < arrivals.size(); ++i) {
            local.wait(partners[i], arrived, k + 1);
            from.push_back(later(arrivals[i], chunks.place(k)));
        }
        local.reduce(from, later(problem.output(rank), begin),
                     parts == 1 ? size : chunks.elements(k), true);
        if (!chunks.tells_after(k)) continue;
        for (const int partner : partners) local.signal(partner, ready, k + 2);
    }
    if (partials > 0) local.wait(rank, partial, partials);
    meet(local, nodes, rank, read);
    return schedule;
}

}  // namespace vescomm::reduce_scatter_v
