// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "execute/queue.h"
#include "execute/turns.h"
#include "topology/nodes.h"
#include "transport/transport.h"

namespace vescomm {

// A run of elements of one of the caller's arrays.
struct Piece {
    std::byte *data = nullptr;
    std::int64_t elements = 0;
    bool operator==(const Piece &) const = default;
};

// Where one region of a schedule is in this process.
struct RegionBinding {
    vescomm_type_t type = VESCOMM_F32;
    // Buffer, stage and partial sums: a memory, and the first byte of the region in every slab.
    MemoryId memory = 0;
    std::shared_ptr<Mapping> mapping;
    std::uint64_t offset_bytes = 0;
    std::uint64_t slot_bytes = 0;  // from one slot of a staging buffer to the next
    // Source and output: the caller's own memory, one piece after another.
    std::vector<Piece> pieces = {};
};

// All that turns a schedule, which is a value, into an operation on real memory.
struct Bindings {
    int rank = 0;
    Nodes nodes;
    RegionBinding source, buffer, output, staging, partial;
    std::uint64_t flight_word = 0;  // what the flight recorder keeps of it
    std::uint32_t channel = 0;  // of the operation's flags
    SignalName release;  // of the memory: who has let go how often
    bool releases = false;  // completion of a run lets go
    Turns *turns = nullptr;  // at the staging buffer, which outlives the operation
    // Of a message: where it waits for its turn, by slot, and the channel of the peer's flags for
    // this rank. `channel` is that of this rank's flags for the peer. The eager_buffers outlives
    // the operation.
    Queue *queues = nullptr;
    std::uint32_t peer_channel = 0;
    // What is called, as all ranks must; 0: they have agreed before. Of a message, what its sender
    // tells and its receiver expects.
    std::uint32_t signature = 0;
    // Of an exchange. They are where each slot of the staging buffer has room for one of each rank
    // of the node.
    PairDigests pair_digests;
    std::uint64_t pairs_offset = 0;
    // In a slot of the staging buffer: by rank, what was called if something is wanted of it
    // (Schedule::wants), and 0 if not; and the places of Step::relay, with the number of the run.
    std::uint64_t masks_offset = 0, forwarded_offset = 0;
    // The ranks of this node together write more than the caches hold: copy past them.
    bool streaming = false;
    vescomm_op_t op = VESCOMM_SUM;
    int divisor = 1;  // of a finished reduction
    double factor = 1;  // of VESCOMM_PREMULTIPLIED_SUM
    Transport *intra_node = nullptr;  // maps the ranks of this node
    std::vector<Transport *> transports;  // by peer
};

}  // namespace vescomm
