// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/problem.h"

namespace vescomm::internal::all_reduce {

// A reduce_scatter_v in place, and then an all_gather_v in place. One rank sums each element, so
// all ranks end with the same bits. For arrays each phase has one half of the staging buffer, so
// that a fast rank does not overwrite elements that a slow rank still reads.
struct Phases {
    AnyProblem scatter, gather;

    // `problem`: of one kind, or of either.
    template <typename Kind>
    explicit Phases(const Kind &problem) : scatter(problem), gather(problem) {
        scatter->collective = Collective::reduce_scatter_v;
        gather->collective = Collective::all_gather_v;
        for (AnyProblem *phase : {&scatter, &gather}) {
            if (BufferProblem *buffers = phase->buffers()) buffers->in_place = true;
            if (ArrayProblem *arrays = phase->arrays()) {
                arrays->is_phase = true;
                arrays->staging.count /= 2;
            }
        }
        if (ArrayProblem *arrays = gather.arrays()) arrays->staging.begin += arrays->staging.count;
    }
};

}  // namespace vescomm::internal::all_reduce
