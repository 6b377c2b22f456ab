// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "schedule/algorithms.h"
#include "schedule/rails.h"

namespace vescomm::reduce_scatter_v {

namespace {

enum Flag : std::uint32_t {
    filled,  // my buffer holds my contribution
    summed,  // my part of the sum is there
    taken,  // I have all I need from the others
};

struct Part {
    int owner = 0;
    std::int64_t begin = 0, count = 0;  // of the vector
};

// What lies in both the shard of a rank and the part that another one sums.
Part part_of(const Problem &problem, const std::vector<std::int64_t> &parts, int owner, int rank) {
    const std::int64_t begin = std::max(problem.begin(owner), parts[rank]);
    const std::int64_t end = std::min(problem.cuts[owner + 1], parts[rank + 1]);
    return {owner, begin, std::max<std::int64_t>(0, end - begin)};
}

}  // namespace

// Balanced: the ranks of one node sum equal parts of the vector, whoever owns them, so that a rank
// that owns most of it does not sum most of it alone.
//
//     shards    │ 0                      │1│2│3│      who owns
//     parts     │ 0     │ 1     │ 2    │ 3     │      who sums
//
// In place, a sum goes straight to its owner's buffer. With an output apart, which only its owner
// can touch, others leave it among their partial sums, and the owner copies it from there.
//
// Cost: with m ranks on the node each reads the vector once (m parts of a mth) and writes a mth of
// it; with an output apart owners copy what others have summed. Two waits for everyone.
// Source: the one-pass reduction that shared memory allows, cut as for an all-reduce.
Schedule balanced(const Problem &problem, int rank) {
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
    // Where the part of a shard ends up, in place or in an output.
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
        // Before it, the peer's partial sums hold those for owners before this rank, but not its
        // own.
        std::int64_t before = 0;
        for (int owner = 0; owner < rank; ++owner)
            if (owner != peer) before += part_of(problem, parts, owner, peer).count;
        const Part part = part_of(problem, parts, rank, peer);
        lane.copy({peer, Region::partial, before}, place(part), part.count);
    }
    meet(lane, problem.nodes, rank, taken);
    return schedule;
}

}  // namespace vescomm::reduce_scatter_v
