// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/problem.h"

namespace vescomm::internal::common {

// Passes blocks between arrays of the callers, for any collective that combines nothing
// (Problem::block()). A block passes in chunks through two chunk slots of a staging buffer: one is
// filled while the other is read.
//
//     node A                                      node B
//     source 0 ─copy─► staging 0 ─copy─► output 1
//        └──────────────put───────────────────►  staging 2 ─copy─► output 2, output 3
//
// Within a node a sender fills slots of its own staging buffer, and receivers copy from them. To
// another node it puts into slots of the receiver. A block for all ranks goes to each other node
// once, to the rail peer of the sender, and the ranks of that node copy it from there.
//
// Local peers read a registered array where it is. Its rank then copies nothing into its staging
// buffer, and waits at the end until all blocks have been read.
//
// In an all_to_all_v, a small block for a local peer passes through a pair area instead, all at
// once and beside its flag.
//
// Cost: two passes, which overlap, over the bytes that a rank sends within its node and over those
// from other nodes. Blocks may be unequal: a chunk may follow as soon as its slot has been read,
// not when the largest block is complete.
Schedule pass_blocks(const ArrayProblem &problem, int rank);

// Passes only those blocks for which is_forwarded() (forwarded.h) is false, through a part of the
// staging buffer.
Schedule pass_blocks(const ArrayProblem &problem, int rank, Extent staging,
                     std::int64_t max_forwarded);

// True if the staging buffer, or a part of it, has slots for all blocks.
bool can_pass_blocks(const ArrayProblem &problem);
bool can_pass_blocks(const ArrayProblem &problem, Extent staging);

}  // namespace vescomm::internal::common
