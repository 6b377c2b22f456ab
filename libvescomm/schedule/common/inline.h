// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/problem.h"

namespace vescomm::internal::common {

// Inline: any collective on arrays of a few kilobytes, among the ranks of one node. Each rank
// copies its source array into its own inline slot, beside the flag. The other ranks copy their
// blocks from there, or combine them.
//
//     rank 0: │ flag │ source of 0 │  ──▶  ranks 1 and 2 copy their blocks, or combine
//     rank 1: │ flag │ source of 1 │  ──▶  ranks 0 and 2
//     rank 2: │ flag │ source of 2 │  ──▶  ranks 0 and 1
//
// Cost: two copies of each block and one wait for each sender. Up to 48 bytes need one cache line
// between two ranks, which transfers flag and bytes together. Source: the eager protocol of MPI
// libraries, NCCL's LL protocols.
Schedule inlined(const ArrayProblem &problem, int rank);

// True if the source array of each rank fits. Not for all_to_all_v: a receiver does not know the
// offset of its block in the staging buffer of a sender.
bool can_be_inline(const ArrayProblem &problem);

// The elements of the sum that are the result of a rank.
Extent result_of(const ArrayProblem &problem, int rank);

}  // namespace vescomm::internal::common
