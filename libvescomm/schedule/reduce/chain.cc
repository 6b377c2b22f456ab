// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/reduce/at_root.h"

namespace vescomm::reduce {

bool can_chain(const Problem &problem) {
    return reduce_scatter_v::can_chain(all_for_root(problem));
}

// Chain: running sums pass through the nodes in the order of ranks, and from the last one to the
// root, which owns everything.
//
// Cost: reduce_scatter_v/chain.cc: a latency for each node, and no link carries more than the
// vector once; at_root.cc has one latency, and the root's node gets it from every other one.
// Source: as for reduce_scatter_v/chain.cc.
Schedule chain(const Problem &problem, int rank) {
    return reduce_scatter_v::chain(all_for_root(problem), rank);
}

}  // namespace vescomm::reduce
