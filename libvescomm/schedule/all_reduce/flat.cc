// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/chunks.h"

namespace vescomm::internal::all_reduce {

namespace {

enum Flag : std::uint32_t {
    written,  // value k + 1: chunk k of the contribution of this rank is in its staging buffer
    read,  // value k + 1: this rank has read chunk k of all contributions
};

}  // namespace

// Flat: every rank of the one node sums the whole vector for itself, in the order of ranks, so all
// end with the same bits.
//
// Registered sources are read where they are, and each rank waits at the end until all have read
// its source.
//
// Cost: one signal, and then one pass that reads the contributions of all m ranks. Best while they
// fit the cache and waiting costs more than reading.
// Source: the all-to-all exchange of small messages in MPICH and NCCL's one-shot all-reduce.
Schedule flat(const ArrayProblem &problem, int rank) {
    const int ranks = problem.ranks();
    const auto [size, slots] = chunk_slots_on_node(problem.staging.count, 1, problem);
    const Chunks chunks(problem.elements(), size, slots);
    const auto staging = [&](int peer, std::int64_t k) {
        return Place{peer, Region::staging, problem.staging.begin + chunks.slot(k),
                     chunks.begin(k)};
    };
    Schedule schedule;
    schedule.staging = problem.staging.begin + problem.staging.count;
    Lane &lane = schedule.lanes.emplace_back();
    lane.acquire();
    for (std::int64_t k = 0; k < chunks.count(); ++k) {
        const auto value = static_cast<std::uint32_t>(k) + 1;
        const std::int64_t begin = chunks.begin(k), count = chunks.elements(k);
        const Place mine{rank, Region::source, begin};
        if (ranks > 1) {
            for (int peer = 0; peer < ranks && k >= slots; ++peer)
                if (peer != rank)
                    lane.wait_when(When::staged, peer, read,
                                   value - static_cast<std::uint32_t>(slots));
            lane.copy(mine, staging(rank, k), count, When::staged);
            lane.signal_node(written, value);
        }
        std::vector<Place> from;
        for (int peer = 0; peer < ranks; ++peer) {
            if (peer != rank) lane.wait(peer, written, value);
            from.push_back(peer == rank ? mine : staging(peer, k));
        }
        lane.reduce(from, {rank, Region::output, begin}, count, true);
        const bool awaited = k + slots < chunks.count() || k + 1 == chunks.count();
        if (ranks > 1 && awaited) lane.signal_node(read, value);
    }
    for (int peer = 0; peer < ranks && chunks.count() > 0; ++peer)
        if (peer != rank)
            lane.wait_when(When::registered, peer, read,
                           static_cast<std::uint32_t>(chunks.count()));
    return schedule;
}

}  // namespace vescomm::internal::all_reduce
