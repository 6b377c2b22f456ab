// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "schedule/algorithms.h"
#include "schedule/fan_out.h"
#include "schedule/rails.h"

namespace vescomm::internal::all_reduce {

namespace {

enum Flag : std::uint32_t {
    filled,  // the contribution of this rank is in its buffer, which others may read and overwrite
    summed,  // all ranks have the share of the sum of this rank
};

}  // namespace

// Direct: every rank of the one node sums its share of the vector straight out of all buffers, and
// writes it to all of them.
//
//     buffer 0 ─┐                     ┌─► buffer 0
//     buffer 1 ─┼─sum─► a chunk of ──┼─► buffer 1      then the next chunk
//     buffer 2 ─┘       buffer 1      └─► buffer 2
//
// Only its own rank reads and writes a share, so all end with the same bits, and no rank waits
// between the sum and the copies.
//
// Cost: each of m ranks reads 1/m of m buffers and writes 1/m of m buffers; two waits.
// Source: reduce_scatter_v/direct and all_gather_v/direct, joined while a chunk is in the cache.
Schedule direct(const BufferProblem &problem, int rank) {
    const int ranks = problem.ranks();
    Schedule schedule;
    Lane &lane = schedule.lanes.emplace_back();

    meet(lane, problem.nodes, rank, filled);
    const std::int64_t chunk = fan_out_chunk(problem.size(rank));
    for (std::int64_t begin = 0; begin < problem.size(rank); begin += chunk) {
        const std::int64_t count = std::min(chunk, problem.size(rank) - begin);
        const auto part = [&](int holder) { return later(problem.shard(holder, rank), begin); };
        std::vector<Place> from;
        for (int peer = 0; peer < ranks; ++peer) from.push_back(part(peer));
        lane.reduce(from, part(rank), count, true);
        for (int away = 1; away < ranks; ++away)
            lane.copy(part(rank), part((rank + away) % ranks), count);
    }
    meet(lane, problem.nodes, rank, summed);
    return schedule;
}

}  // namespace vescomm::internal::all_reduce
