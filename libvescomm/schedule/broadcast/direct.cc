// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/fan_out.h"
#include "schedule/rails.h"

namespace vescomm::internal::broadcast {

namespace {

enum Flag : std::uint32_t {
    started,  // the root: its data is in its buffer; other ranks: the buffer may be overwritten
    written,  // all ranks have the slice of this rank
};

}  // namespace

// Direct: every rank of the one node, including the root, copies an equal slice of the root's
// buffer to all other buffers.
//
//     root │ slice 0 │ slice 1 │ slice 2 │      rank k copies slice k, chunk by chunk, to every
//              0         1         2            buffer but the root's
//
// Cost: each of m ranks reads 1/m of the buffer and writes it m - 1 times; two waits.
// Source: the scatter and all-gather of large broadcasts (van de Geijn), without the scatter, which
// shared memory does not need.
Schedule direct(const BufferProblem &problem, int rank) {
    const int ranks = problem.ranks();
    Schedule schedule;
    Lane &lane = schedule.lanes.emplace_back();

    std::vector<std::int64_t> slices;
    cut_evenly(problem.elements(), ranks, slices);
    const auto slice = [&](int holder) { return Place{holder, Region::buffer, slices[rank]}; };
    std::vector<Place> to;
    for (int away = 0; away < ranks; ++away) {
        const int peer = (rank + away) % ranks;
        if (peer != problem.root) to.push_back(slice(peer));
    }
    meet(lane, problem.nodes, rank, started);
    fan_out(lane, slice(problem.root), to, slices[rank + 1] - slices[rank]);
    meet(lane, problem.nodes, rank, written);
    return schedule;
}

}  // namespace vescomm::internal::broadcast
