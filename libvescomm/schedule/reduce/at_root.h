// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/problem.h"

namespace vescomm::internal::reduce {

// The reduce as a reduce_scatter_v in which the root owns all elements.
template <typename Kind>
Kind all_for_root(const Kind &problem) {
    Kind scatter = problem;
    scatter.collective = Collective::reduce_scatter_v;
    for (int owner = 0; owner < problem.ranks(); ++owner)
        scatter.cuts[static_cast<std::size_t>(owner) + 1] =
            owner < problem.root ? 0 : problem.elements();
    return scatter;
}

}  // namespace vescomm::internal::reduce
