// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "schedule/algorithms.h"
#include "schedule/rails.h"

namespace vescomm::internal::reduce_scatter_v {

namespace {

enum Flag : std::uint32_t {
    filled,  // the contribution of this rank is in its buffer
    summed,  // the sum of the part of this rank is complete
    taken,  // this rank has copied all data it needs from other ranks
};

// Elements of the vector that one rank sums, within the shard of one owner.
struct Part {
    int owner = 0;
    std::int64_t begin = 0, count = 0;
};

// The intersection of the shard of `owner` and the part that `rank` sums.
Part part_of(const BufferProblem &problem, const std::vector<std::int64_t> &parts, int owner,
             int rank) {
    const std::int64_t begin = std::max(problem.begin(owner), parts[rank]);
    const std::int64_t end = std::min(problem.cuts[owner + 1], parts[rank + 1]);
    return {owner, begin, std::max<std::int64_t>(0, end - begin)};
}

}  // namespace

// Balanced: the ranks of one node sum equal parts of the vector, independent of the owners, so that
// the owner of a large shard does not sum most of the vector alone.
//
//     shards    │ 0                      │1│2│3│      by owner
//     parts     │ 0     │ 1     │ 2    │ 3     │      by summing rank
//
// In place, a sum goes straight to its owner's buffer. A separate output is accessible to its owner
// only: other ranks leave the sum among their partial sums, and the owner copies it from there.
//
// Cost: each of m ranks reads 1/m of m buffers and writes 1/m of the vector; for separate outputs
// the owners also copy the sums of other ranks. Two waits for all ranks.
// Source: the one-pass reduction that shared memory allows, cut as for an all-reduce.
Schedule balanced(const BufferProblem &problem, int rank) {
    const int ranks = problem.ranks();
    std::vector<std::int64_t> parts;
    cut_evenly(problem.elements(), ranks, parts);

    Schedule schedule;
    Lane &lane = schedule.lanes.emplace_back();
    const auto sum = [&](const Part &part, Place to) {
        std::vector<Place> from;
        for (int peer = 0; peer < ranks; ++peer) from.push_back({peer, Region::buffer, part.begin});
        if (part.count > 0) lane.reduce(from, to, part.count, true);
    };
    // Place of the result, in place or in an output.
    const auto place = [&](const Part &part) {
        Place to = problem.output(part.owner);
        to.offset += part.begin - problem.begin(part.owner);
        return to;
    };

    meet(lane, problem.nodes, rank, filled);
    for (int owner = 0; owner < ranks; ++owner) {
        const Part part = part_of(problem, parts, owner, rank);
        const bool reachable = problem.in_place || owner == rank;
        sum(part, reachable ? place(part) : Place{rank, Region::partial, schedule.partial});
        if (!reachable) schedule.partial += part.count;
    }
    meet(lane, problem.nodes, rank, summed);
    if (problem.in_place) return schedule;
    for (int away = 1; away < ranks; ++away) {
        const int peer = (rank + away) % ranks;
        // The peer's partial sums hold the parts for all owners but itself, in the order of ranks.
        std::int64_t before = 0;
        for (int owner = 0; owner < rank; ++owner)
            if (owner != peer) before += part_of(problem, parts, owner, peer).count;
        const Part part = part_of(problem, parts, rank, peer);
        lane.copy({peer, Region::partial, before}, place(part), part.count);
    }
    meet(lane, problem.nodes, rank, taken);
    return schedule;
}

// A rank keeps the sums of its part, without those for its own shard.
std::int64_t max_partial_of_balanced(const BufferProblem &problem) {
    if (problem.in_place) return 0;
    std::vector<std::int64_t> parts;
    cut_evenly(problem.elements(), problem.ranks(), parts);
    std::int64_t max = 0;
    for (int rank = 0; rank < problem.ranks(); ++rank)
        max = std::max(max,
                       parts[rank + 1] - parts[rank] - part_of(problem, parts, rank, rank).count);
    return max;
}

}  // namespace vescomm::internal::reduce_scatter_v
