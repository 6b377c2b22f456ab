// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <vector>

#include "schedule/algorithms.h"
#include "schedule/chunks.h"
#include "schedule/rails.h"

namespace vescomm::internal::reduce_scatter_v {

namespace {

enum Flag : std::uint32_t {
    filled,  // the contribution of this rank is in its buffer
    read,  // this rank has read all data it needs from the buffers of its node
    clear_to_send,  // value k + 1, for a rank of another node: the receiver has read the first k
                    // chunks, and their slots may be overwritten
    partial,  // value i, for the lanes of this rank: its first i chunks of partial sums are
              // complete
    arrived,  // raised by a put: value k + 1 means that chunk k of the sender's sum has arrived
};

// The place `elements` after the begin of a shard, in the buffers of all ranks of a node.
std::vector<Place> in_buffers(const BufferProblem &problem, std::span<const int> members, int owner,
                              std::int64_t elements) {
    std::vector<Place> places;
    for (const int member : members)
        places.push_back(later(problem.shard(member, owner), elements));
    return places;
}

// True if a rank of a node of `locals` ranks puts its own contribution instead of a partial sum.
bool sends_own(const BufferProblem &problem, std::size_t locals) {
    return locals == 1 && problem.contributions_are_sums;
}

// Elements of partial sums for one sum of a shard.
std::int64_t partial_for(const BufferProblem &problem, int owner) {
    return PutChunks(problem.size(owner)).capacity();
}

// Adds the lanes that make and put the partial sums for those rail peers of this rank that own
// shards. Returns the number of chunks of partial sums.
std::uint32_t send_partial_sums(const BufferProblem &problem, int rank, Schedule &schedule) {
    const Nodes &nodes = problem.nodes;
    const int node = nodes.node_of(rank);
    const auto members = nodes.members(node);
    const bool sends_its_own = sends_own(problem, members.size());

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
        if (!sends_its_own) schedule.partial += partial_for(problem, peer);
        partners.push_back({peer, chunks, sends_its_own ? problem.shard(rank, peer) : sum, {}});
        max_chunks = std::max(max_chunks, partners.back().chunks.number());
    }

    Lane sums;
    for (const int peer : members)
        if (peer != rank) sums.wait(peer, filled, 1);
    std::uint32_t partials = 0;
    // One chunk for each partner in turn, so that every link is busy.
    for (std::uint32_t k = 0; k < max_chunks; ++k) {
        for (auto &[peer, chunks, from, puts] : partners) {
            if (k >= chunks.number()) continue;
            const std::int64_t begin = chunks.begin(k), count = chunks.elements(k);
            const std::uint32_t credit = 1 + chunks.released_before(k);
            Place place = later(from, begin);
            if (!sends_its_own) {
                place = later(from, chunks.slot(k));
                if (k >= PutChunks::ring) sums.wait(peer, clear_to_send, credit);
                sums.reduce(in_buffers(problem, members, peer, begin), place, count, false);
                sums.signal_node(partial, ++partials);
                puts.wait(rank, partial, partials);
            }
            puts.wait(peer, clear_to_send, credit,
                      k == 0 && is_eager(problem, rank, peer, chunks.elements()));
            // The partial sums of the peer have one place for each other node, in the order of
            // nodes.
            const int slot = node - (node > nodes.node_of(peer) ? 1 : 0);
            puts.put(place, {peer, Region::partial, slot * chunks.capacity() + chunks.slot(k)},
                     count, arrived, k + 1);
        }
    }
    if (partials > 0) schedule.lanes.push_back(std::move(sums));
    for (Partner &partner : partners) schedule.lanes.push_back(std::move(partner.puts));
    return partials;
}

}  // namespace

// Direct: every rank sums its own shard straight out of all buffers, in one pass.
//
//     node A                          node B
//     buffer 0 ─┐                     buffer 2 ─┐
//     buffer 1 ─┴─sum─► output 0      buffer 3 ─┴─sum─► partial ─put─► partial of r0 ─► output 0
//
// On one node no data is staged: each element is read once from every buffer and written once. For
// a shard of a rank on another node, its rail peer makes one partial sum of the node, of the
// accumulator type, and puts it in chunks (chunks.h): one chunk is summed while others are sent and
// received. A rank that is alone on its node puts its contribution unchanged if it has the type of
// partial sums.
//
// Cost: each of m ranks on a node reads its shard m times and writes it once; with n nodes it also
// sums and sends n - 1 shards (more if nodes differ in size). Source: the one-pass reduction that
// shared memory allows; hierarchical variant as in UCC's CL/HIER, but with all ranks of a node
// instead of a leader.
Schedule direct(const BufferProblem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const int node = nodes.node_of(rank);
    const auto members = nodes.members(node);
    const std::int64_t size = problem.size(rank);
    const PutChunks chunks(size);
    Schedule schedule;
    schedule.lanes.resize(1);

    // Layout of the partial sums: first the sums of the other nodes for the shard of this rank, in
    // the order of nodes; then the sums that this rank makes for other nodes.
    std::vector<Place> arrivals;
    std::vector<int> partners;
    for (int other = 0; other < nodes.count() && size > 0; ++other) {
        if (other == node) continue;
        arrivals.push_back({rank, Region::partial, schedule.partial});
        partners.push_back(rail_peer(nodes, other, rank));
        schedule.partial += partial_for(problem, rank);
    }
    const std::uint32_t partials = send_partial_sums(problem, rank, schedule);

    Lane &local = schedule.lanes.front();
    for (const int partner : rotated_for(partners, rank))
        local.signal(partner, clear_to_send, 1, is_eager(problem, partner, rank, size));
    meet(local, nodes, rank, filled);

    const std::uint32_t parts = arrivals.empty() ? 1 : chunks.number();
    for (std::uint32_t k = 0; k < parts; ++k) {
        const std::int64_t begin = chunks.begin(k);
        std::vector<Place> from = in_buffers(problem, members, rank, begin);
        for (std::size_t i = 0; i < arrivals.size(); ++i) {
            local.wait(partners[i], arrived, k + 1);
            from.push_back(later(arrivals[i], chunks.slot(k)));
        }
        local.reduce(from, later(problem.output(rank), begin),
                     parts == 1 ? size : chunks.elements(k), true);
        if (!chunks.releases_after(k)) continue;
        for (const int partner : partners) local.signal(partner, clear_to_send, k + 2);
    }
    if (partials > 0) local.wait(rank, partial, partials);
    meet(local, nodes, rank, read);
    return schedule;
}

// Cost: O(ranks) for each size of nodes.
std::int64_t max_partial_of_direct(const BufferProblem &problem) {
    const Nodes &nodes = problem.nodes;
    // By the size of a node and a local rank there: the sums for all ranks with this rail peer, its
    // own included.
    std::map<std::size_t, std::vector<std::int64_t>> of_rails;
    std::int64_t max = 0;
    for (int rank = 0; rank < nodes.ranks(); ++rank) {
        const std::size_t locals = nodes.members(nodes.node_of(rank)).size();
        const std::int64_t mine = partial_for(problem, rank);
        std::int64_t partial = mine * (nodes.count() - 1);
        if (!sends_own(problem, locals)) {
            std::vector<std::int64_t> &rails = of_rails[locals];
            if (rails.empty()) {
                rails.resize(locals, 0);
                for (int owner = 0; owner < nodes.ranks(); ++owner)
                    rails[static_cast<std::size_t>(nodes.local_rank(owner)) % locals] +=
                        partial_for(problem, owner);
            }
            partial += rails[static_cast<std::size_t>(nodes.local_rank(rank))] - mine;
        }
        max = std::max(max, partial);
    }
    return max;
}

}  // namespace vescomm::internal::reduce_scatter_v
