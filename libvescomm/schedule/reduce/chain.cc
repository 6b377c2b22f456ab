// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"
#include "schedule/reduce/at_root.h"

namespace vescomm::internal::reduce {

bool can_chain(const ArrayProblem &problem) {
    return reduce_scatter_v::can_chain(all_for_root(problem));
}

// Chain: running sums pass through the nodes in the order of ranks, and from the last one to the
// root, which owns all elements.
//
// Cost: that of reduce_scatter_v/chain.cc: one latency for each node, and each link carries the
// vector at most once. at_root.cc has one latency, but every other node sends the vector to the
// root's node.
// Source: that of reduce_scatter_v/chain.cc.
Schedule chain(const ArrayProblem &problem, int rank) {
    return reduce_scatter_v::chain(all_for_root(problem), rank);
}

}  // namespace vescomm::internal::reduce
