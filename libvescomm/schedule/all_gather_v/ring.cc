// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "schedule/algorithms.h"
#include "schedule/node_blocks.h"

namespace vescomm::all_gather_v {

namespace {

enum Flag : std::uint32_t {
    held,  // value i: the first i chunks that I pass on are in my buffer
    ready,  // my buffer may be overwritten (told to a left neighbour on another node)
    arrived,  // a put: value i brings the i-th chunk that the sender passes on
    read,  // I have copied all I need from my left neighbour's buffer
};

// Elements that travel at once: of 4 bytes they are a message over TCP, and stay in the cache of
// who passes them on. Larger chunks only bound what a schedule of very much takes.
std::int64_t chunk_of(std::int64_t elements) {
    constexpr std::int64_t min = 32'544, max_chunks = 1024;
    return (elements / max_chunks / min + 1) * min;
}

// Ranks, node by node, from one of them on against the direction of the ring.
std::vector<int> upstream(const Nodes &nodes, int rank) {
    std::vector<int> order;
    for (int node = nodes.count() - 1; node >= 0; --node)
        order.insert(order.end(), nodes.members(node).rbegin(), nodes.members(node).rend());
    std::rotate(order.begin(), std::ranges::find(order, rank), order.end());
    return order;
}

}  // namespace

// Ring: every rank has a buffer of its own.
//
//     r0 ──000 3 2──► r1 ──1 000 3──► r2 ──2 1 000──► r3 ──3 2 1──► r0        (000: three chunks)
//
// A rank passes on a stream of chunks: its own shard first, and then what comes from its left
// neighbour, as it comes, but for the shard of its right neighbour. So all count chunks in the same
// order, and a large shard is on every link at once. The ring goes through one node after another;
// a neighbour on the same node is copied from, one on another node is put to.
//
// Cost: a rank passes on S less its right neighbour's shard, which no link of a ring can undercut,
// and hardly waits in between: with one owner of nearly everything that takes S and ranks - 2
// chunks, with shards of less than a chunk ranks - 1 latencies. One rank of a node sends to others.
//
// Source: Träff, Ripke, Siebert, Balaji, Thakur, Gropp, "A Pipelined Algorithm for Large, Irregular
// All-Gather Problems", IJHPCA 24(1), 2010.
Schedule ring(const Problem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const std::vector<int> order = upstream(nodes, rank);
    const int left = order[1 % order.size()], right = order.back();
    const bool copies_from_left = nodes.together(left, rank);
    const bool puts_to_right = !nodes.together(rank, right);

    // The first chunks are my own; after those that I pass on come my right neighbour's.
    std::vector<Extent> chunks;
    std::size_t own = 0, passed = 0;
    const std::int64_t max = chunk_of(problem.elements());
    for (const int owner : order) {
        passed = chunks.size();
        const std::int64_t end = problem.cuts[owner + 1];
        for (std::int64_t begin = problem.begin(owner); begin < end; begin += max)
            chunks.push_back({begin, std::min(max, end - begin)});
        if (owner == rank) own = chunks.size();
    }

    // One lane: who waits until its right neighbour is ready could not end before that anyway.
    Schedule schedule;
    Lane &lane = schedule.lanes.emplace_back();
    lane.steps().reserve(3 * chunks.size() + 3);
    if (chunks.size() > own && !copies_from_left) lane.signal(left, ready, 1);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        const auto [begin, size] = chunks[i];
        const Place here{rank, Region::buffer, begin};
        const auto value = static_cast<std::uint32_t>(i) + 1;
        if (i >= own) {
            const auto value_of_left = value - static_cast<std::uint32_t>(own);
            lane.wait(left, copies_from_left ? held : arrived, value_of_left);
            if (copies_from_left) lane.copy({left, Region::buffer, begin}, here, size);
        } else if (!problem.in_place) {
            lane.copy(later(problem.source(rank), begin - problem.begin(rank)), here, size);
        }
        if (i >= passed) continue;
        if (puts_to_right && i == 0) lane.wait(right, ready, 1);
        if (puts_to_right) lane.put(here, {right, Region::buffer, begin}, size, arrived, value);
        else lane.signal_node(held, value);
    }
    if (chunks.size() > own && copies_from_left) lane.signal_node(read, 1);
    if (passed > 0 && !puts_to_right) lane.wait(right, read, 1);
    return schedule;
}

}  // namespace vescomm::all_gather_v
