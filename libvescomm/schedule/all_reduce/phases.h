// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/problem.h"

namespace vescomm::internal::all_reduce {

// A reduce_scatter_v in place, and then an all_gather_v in place. One rank sums each element, so
// all ranks end with the same bits. For arrays each phase has one half of the staging buffer, so
// that a fast rank does not overwrite elements that a slow rank still reads.
struct Phases {
    Problem scatter, gather;

    explicit Phases(const Problem &problem) : scatter(problem) {
        scatter.collective = Collective::reduce_scatter_v;
        scatter.in_place = true;
        scatter.half = problem.arrays;
        scatter.staging.count /= 2;
        gather = scatter;
        gather.collective = Collective::all_gather_v;
        gather.staging.begin += gather.staging.count;
    }
};

}  // namespace vescomm::internal::all_reduce
