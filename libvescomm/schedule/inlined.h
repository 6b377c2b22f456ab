// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/problem.h"

namespace vescomm {

// Every collective on arrays of a few kilobytes, among the ranks of one node: each rank puts all
// that it gives into its own stage, with the flag beside it, and takes what it wants straight out
// of the others'.
//
//     rank 0: │ flag │ all that 0 gives │  ──▶  1, 2 take their blocks, or combine
//     rank 1: │ flag │ all that 1 gives │  ──▶  0, 2
//     rank 2: │ flag │ all that 2 gives │  ──▶  0, 1
//
// Cost: two copies of each block, one wait for each sender, and for up to 48 bytes one line of
// cache between two ranks, which brings flag and bytes together. Source: the eager protocol of MPI
// libraries, NCCL's LL protocols.
Schedule inlined(const Problem &problem, int rank);

// Whether what each rank gives fits. Not for all_to_all_v: nobody knows where in a sender's stage
// its block is.
bool can_be_inline(const Problem &problem);

// The elements of the sum that a rank wants.
Extent wanted(const Problem &problem, int rank);

}  // namespace vescomm
