// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "schedule/problem.h"

namespace vescomm::internal {

// The flags of a message. base/flags.h has a third one, tag_flag.
enum MessageFlag : std::uint32_t {
    written_flag,  // value k: the sender has written its first k chunks to the eager buffer
    read_flag,  // value k: the receiver has copied the first k chunks from the eager buffer
};

// Elements that one rank sends to another, or to itself.
struct Message {
    Place source;
    Place output;
    std::int64_t count = 0;
};

// A message passes through an eager buffer, in chunks of `chunk` elements. Each rank has an eager
// buffer for each other rank. It has two chunk slots: one is filled while the other is read.
//
//     node A                                               node B
//     source 0 ─copy─► eager buffer of 0 for 1 ─copy─► output 1
//        └──────────────put────────────────────────────►  eager buffer of 2 for 0 ─copy─► output 2
//
// Within a node the sender fills its own eager buffer, and the receiver copies from it. To another
// node the sender puts into the eager buffer of the receiver. Flags belong to a pair of ranks. An
// empty message is one empty chunk, so the receiver is notified.
//
// The first step acquires the eager buffer: it waits until the previous message is complete on this
// rank, and at the sender also until the receiver has read its chunks. A sender is therefore done
// when its last two chunks are filled.
//
// Cost: two passes over the message, which overlap; between nodes a put and a pass. Both sides wait
// once for each chunk. Source: the pipelined copies of MPI libraries through shared memory.
Lane send(const Nodes &nodes, std::int64_t chunk, const Message &message);
Lane receive(const Nodes &nodes, std::int64_t chunk, const Message &message);
// Steps of receive() for each chunk. One step comes before them.
inline constexpr std::size_t receive_steps_of_chunk = 3;

// All blocks of an all_to_all_v, as messages that are under way at the same time. The staging
// buffer of the problem is the eager buffers. For the schedule checker: a result for these messages
// holds for any subset of them, because messages share flags and places only if they follow one
// another.
Schedule send_receive(const ArrayProblem &problem, int rank);

// True if a chunk slot holds at least one element.
bool can_send_receive(const ArrayProblem &problem);

}  // namespace vescomm::internal
