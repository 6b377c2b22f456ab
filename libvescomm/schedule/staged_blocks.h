// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/problem.h"

namespace vescomm {

// Passes blocks between arrays of the callers, combining nothing, whatever the collective
// (Problem::block() says who has how much for whom). What a block needs to pass is cut into chunks
// of the staging buffer, two for each block, so that one is filled while the other is read:
//
//     node A                                      node B
//     source 0 ─copy─► stage 0 ─copy─► output 1
//        └──────────────put───────────────────►  stage 2 ─copy─► output 2, output 3
//
// Within a node a sender fills the chunks of its own stage, and readers copy out of them; to
// another node it puts into chunks of the receiver's. A block that all ranks get goes to each
// other node once, to the rank in the sender's place, and its neighbours copy it from there.
//
// Cost: two passes over what a rank sends within its node and over what comes from other nodes;
// rounds of one chunk, whose two halves overlap. Blocks may be unequal: a round ends when its
// chunks are read, not when the largest block is through.
//
Schedule pass_blocks(const Problem &problem, int rank);

// The same through a part of the staging buffer, for blocks of which is_forwarded() says that they
// are not.
Schedule pass_blocks(const Problem &problem, int rank, Extent staging, std::int64_t max_forwarded);

// Elements of the largest block that is relayed where so many blocks need a place in the staging
// buffer: they take a quarter of it at most, and none is more than is worth a copy. And what they
// leave of it.
std::int64_t largest_forwarded(const Problem &problem, std::int64_t places);
Extent beside_forwarded(const Problem &problem, std::int64_t places);

// Whether a block passes through a neighbour of its receiver, or in a gather_v of its sender, where
// blocks of up to `max_forwarded` elements do (all_to_all_v/two_level.cc, gather_v/two_level.cc).
bool is_forwarded(const Problem &problem, int from, int to, std::int64_t max_forwarded);

// Whether the staging buffer, or a part of it, has room for a chunk of every block.
bool can_pass_blocks(const Problem &problem);
bool can_pass_blocks(const Problem &problem, Extent staging);

}  // namespace vescomm
