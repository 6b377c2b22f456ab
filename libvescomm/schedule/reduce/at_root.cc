// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"

namespace vescomm::reduce {

// At the root: a reduce_scatter_v of which the root owns everything.
//
// Cost: the root reads m contributions in one pass, alone; other nodes send it one partial sum
// each. Source: reduce_scatter_v/direct.cc and staged.cc.
Schedule at_root(const Problem &problem, int rank) {
    Problem scatter = problem;
    scatter.collective = Collective::reduce_scatter_v;
    for (int owner = 0; owner < problem.ranks(); ++owner)
        scatter.cuts[static_cast<std::size_t>(owner) + 1] =
            owner < problem.root ? 0 : problem.elements();
    return problem.arrays ? reduce_scatter_v::staged(scatter, rank)
                          : reduce_scatter_v::direct(scatter, rank);
}

}  // namespace vescomm::reduce
