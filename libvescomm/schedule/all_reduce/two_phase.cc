// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/all_reduce/phases.h"
#include "schedule/common/staged.h"

namespace vescomm::internal::all_reduce {

bool can_two_phase(const AnyProblem &problem) {
    if (const BufferProblem *buffers = problem.buffers()) return !buffers->per_node;
    const Phases phases(problem);
    return reduce_scatter_v::can_use_staging(*phases.scatter.arrays()) &&
           common::can_pass_blocks(*phases.gather.arrays());
}

// Two phases: a reduce_scatter_v, then an all_gather_v, both straight between all ranks (phases.h).
//
// Cost: the sum of both; on buffers of one node each of m ranks reads its part, 1 / m, of m
// buffers, writes it, and writes it once more to each of m - 1 ranks.
// Source: Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004.
Schedule two_phase(const AnyProblem &problem, int rank) {
    const auto [scatter, gather] = Phases(problem);
    if (problem.arrays())
        return join_schedules(rank, reduce_scatter_v::staged(*scatter.arrays(), rank),
                              common::pass_blocks(*gather.arrays(), rank));
    return join_schedules(rank, reduce_scatter_v::direct(*scatter.buffers(), rank),
                          all_gather_v::direct(*gather.buffers(), rank));
}

}  // namespace vescomm::internal::all_reduce
