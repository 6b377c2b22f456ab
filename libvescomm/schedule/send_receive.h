// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/problem.h"

namespace vescomm {

// Elements that one rank has for another, or for itself.
struct Message {
    Place source;
    Place output;
    std::int64_t count = 0;
};

// A message passes through a box of the eager_buffers, in chunks of `chunk` elements. Each rank has
// a box for each other one, of two chunks: one is filled while the other is read.
//
//     node A                                      node B
//     source 0 ─copy─► box of 0 for 1 ─copy─► output 1
//        └──────────────put───────────────────►  box of 2 for 0 ─copy─► output 2
//
// Within a node the sender fills its own box, and the receiver copies out of it; to another node
// the sender puts into the box of the receiver. Flags belong to a pair of ranks. A message of
// nothing is one empty chunk: who gets it knows that it was sent.
//
// The first step waits until it is the message's turn: until the message that had the box before is
// through here, and at the sender also until its chunks have been read. So a sender is done when
// its last two chunks are filled.
//
// Cost: two passes over the message, which overlap; between nodes a put and a pass. A wait for each
// chunk on either side. Source: the pipelined copies of MPI libraries through shared memory.
Lane send(const Nodes &nodes, std::int64_t chunk, const Message &message);
Lane receive(const Nodes &nodes, std::int64_t chunk, const Message &message);

// Everything that an all_to_all_v has for anybody, as messages that are all under way at once. The
// stage of the problem is the eager_buffers. For the schedule checker: what holds for these holds
// for any of them, since no two messages have a flag or a place in common unless they follow one
// another.
Schedule send_receive(const Problem &problem, int rank);

// Whether each chunk has room for an element.
bool can_send_receive(const Problem &problem);

}  // namespace vescomm
