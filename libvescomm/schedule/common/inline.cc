// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/common/inline.h"

namespace vescomm::internal::common {

namespace {

// Number of elements that `to` reads from `from`.
std::int64_t elements_between(const ArrayProblem &problem, int from, int to) {
    return reduces(problem.collective) ? result_of(problem, to).count : problem.block(from, to);
}

}  // namespace

Extent result_of(const ArrayProblem &problem, int rank) {
    switch (problem.collective) {
        case Collective::reduce_scatter_v:
            return {problem.begin(rank), problem.size(rank)};
        case Collective::reduce:
            return {0, rank == problem.root ? problem.elements() : 0};
        default:
            return {0, problem.elements()};
    }
}

bool can_be_inline(const ArrayProblem &problem) {
    if (problem.is_phase || problem.nodes.count() > 1 || problem.cuts.empty()) return false;
    for (int rank = 0; rank < problem.ranks(); ++rank)
        if (problem.source_size(rank) > problem.inlined.count) return false;
    return true;
}

Schedule inlined(const ArrayProblem &problem, int rank) {
    const int ranks = problem.ranks();
    // A source that does not fit beside the flag begins in the next cache line.
    const auto first = [&](int peer) {
        const std::int64_t beside = problem.inlined.begin;
        return problem.source_size(peer) <= beside ? 0 : beside;
    };
    const auto inlined = [&](int peer, std::int64_t offset) {
        return Place{peer, Region::inlined, first(peer) + offset};
    };
    Schedule schedule;
    Lane &lane = schedule.lanes.emplace_back();
    lane.acquire();
    bool writes = false;
    for (int peer = 0; peer < ranks; ++peer)
        writes |= peer != rank && elements_between(problem, rank, peer) > 0;
    if (writes) {
        const std::int64_t count = problem.source_size(rank);
        schedule.inlined = first(rank) + count;
        lane.copy({rank, Region::source, 0}, inlined(rank, 0), count);
        lane.signal_node(inline_flag, 1);
    }
    if (reduces(problem.collective)) {
        const Extent result = result_of(problem, rank);
        if (result.count == 0) return schedule;
        std::vector<Place> from;
        for (int peer = 0; peer < ranks; ++peer) {
            if (peer != rank) lane.wait(peer, inline_flag, 1);
            from.push_back(peer == rank ? Place{rank, Region::source, result.begin}
                                        : inlined(peer, result.begin));
        }
        lane.reduce(from, {rank, Region::output, 0}, result.count, true);
        return schedule;
    }
    lane.copy(problem.given(rank, rank), problem.taken(rank, rank), problem.block(rank, rank));
    for (int away = 1; away < ranks; ++away) {
        const int peer = (rank + away) % ranks;
        if (problem.block(peer, rank) == 0) continue;
        lane.wait(peer, inline_flag, 1);
        lane.copy(inlined(peer, problem.given(peer, rank).offset), problem.taken(peer, rank),
                  problem.block(peer, rank));
    }
    return schedule;
}

}  // namespace vescomm::internal::common
