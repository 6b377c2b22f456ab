// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "schedule/algorithms.h"
#include "schedule/chunks.h"

namespace vescomm::internal::all_gather_v {

namespace {

enum Flag : std::uint32_t {
    held,  // value i: the first i chunks that this rank passes on are in its buffer
    clear_to_send,  // for a left neighbour on another node: the buffer may be overwritten
    arrived,  // raised by a put: value i means that the i-th chunk of the sender has arrived
    read,  // this rank has copied all data it needs from its left neighbour's buffer
};

// Minimum elements of a chunk. With elements of 4 bytes a chunk is one message over TCP, and stays
// in the cache of the rank that passes it on.
constexpr std::int64_t min_chunk = 32'544;

// All ranks in the reverse direction of the ring, beginning with `rank`.
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
// Each rank passes on a stream of chunks: its own shard, then the chunks of its left neighbour in
// the order of arrival, except for the shard of its right neighbour. All ranks therefore count
// chunks in the same order, and a large shard is on every link at the same time. The ring visits
// one node after another. A rank copies from a left neighbour on its node, and puts to a right
// neighbour on another node.
//
// Cost: a rank passes on S without its right neighbour's shard, which is the minimum of a ring,
// with hardly any waiting. With one owner of nearly everything the time is that of S and ranks - 2
// chunks; with shards smaller than a chunk it is ranks - 1 latencies. One rank of each node sends
// to another node.
//
// Source: Träff, Ripke, Siebert, Balaji, Thakur, Gropp, "A Pipelined Algorithm for Large, Irregular
// All-Gather Problems", IJHPCA 24(1), 2010.
Schedule ring(const BufferProblem &problem, int rank) {
    const Nodes &nodes = problem.nodes;
    const std::vector<int> order = upstream(nodes, rank);
    const int left = order[1 % order.size()], right = order.back();
    const bool copies_from_left = nodes.together(left, rank);
    const bool puts_to_right = !nodes.together(rank, right);

    // Chunks in the order of the stream: own chunks, chunks passed on, chunks of the right
    // neighbour.
    std::vector<Extent> chunks;
    std::size_t own = 0, passed = 0;
    const std::int64_t max = chunk_size(problem.elements(), min_chunk, 1024);
    for (const int owner : order) {
        passed = chunks.size();
        const std::int64_t end = problem.cuts[owner + 1];
        for (std::int64_t begin = problem.begin(owner); begin < end; begin += max)
            chunks.push_back({begin, std::min(max, end - begin)});
        if (owner == rank) own = chunks.size();
    }

    // One lane suffices: a rank cannot finish before its right neighbour is ready to receive.
    Schedule schedule;
    Lane &lane = schedule.lanes.emplace_back();
    lane.steps().reserve(3 * chunks.size() + 3);
    if (chunks.size() > own && !copies_from_left) lane.signal(left, clear_to_send, 1);
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        const auto [begin, count] = chunks[i];
        const Place here{rank, Region::buffer, begin};
        const auto value = static_cast<std::uint32_t>(i) + 1;
        if (i >= own) {
            const auto value_of_left = value - static_cast<std::uint32_t>(own);
            lane.wait(left, copies_from_left ? held : arrived, value_of_left);
            if (copies_from_left) lane.copy({left, Region::buffer, begin}, here, count);
        } else if (!problem.in_place) {
            lane.copy(later(problem.source(rank), begin - problem.begin(rank)), here, count);
        }
        if (i >= passed) continue;
        if (puts_to_right && i == 0) lane.wait(right, clear_to_send, 1);
        if (puts_to_right) lane.put(here, {right, Region::buffer, begin}, count, arrived, value);
        else lane.signal_node(held, value);
    }
    if (chunks.size() > own && copies_from_left) lane.signal_node(read, 1);
    if (passed > 0 && !puts_to_right) lane.wait(right, read, 1);
    return schedule;
}

}  // namespace vescomm::internal::all_gather_v
