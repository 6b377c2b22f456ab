// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/reduce/at_root.h"

#include "schedule/algorithms.h"

namespace vescomm::internal::reduce {

// At the root: a reduce_scatter_v in which the root owns all elements.
//
// Cost: the root reads m contributions in one pass, alone; other nodes send it one partial sum
// each. Source: reduce_scatter_v/direct.cc and staged.cc.
Schedule at_root(const AnyProblem &problem, int rank) {
    if (const ArrayProblem *arrays = problem.arrays())
        return reduce_scatter_v::staged(all_for_root(*arrays), rank);
    return reduce_scatter_v::direct(all_for_root(*problem.buffers()), rank);
}

}  // namespace vescomm::internal::reduce
