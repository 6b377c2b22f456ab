// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/staged_blocks.h"

namespace vescomm::all_reduce {

// Two phases: a reduce_scatter_v in place, then an all_gather_v in place. Every element is summed
// by one rank only, so all ranks end with the same bits.
//
// Arrays of the callers: both phases go through the stage, each through a half of its own, so that
// a fast rank does not write where a slow one still reads.
//
// Cost: the two together; on one node each rank reads m + 1 and writes 1 + (m - 1) / m buffers.
// Source: Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004.
Schedule two_phase(const Problem &problem, int rank) {
    Problem scatter = problem;
    scatter.collective = Collective::reduce_scatter_v;
    scatter.in_place = true;
    scatter.half = problem.arrays;
    scatter.stage.elements /= 2;
    Problem gather = scatter;
    gather.collective = Collective::all_gather_v;
    gather.stage.begin += scatter.stage.elements;
    if (problem.arrays)
        return then(rank, reduce_scatter_v::staged(scatter, rank), pass_blocks(gather, rank));
    return then(rank, reduce_scatter_v::direct(scatter, rank), all_gather_v::direct(gather, rank));
}

}  // namespace vescomm::all_reduce
