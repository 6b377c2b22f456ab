// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "execute/match/recent_calls.h"
#include "execute/match/signature.h"
#include "execute/message_queue.h"
#include "execute/slot_sequences.h"
#include "schedule/extent.h"
#include "topology/nodes.h"
#include "transport/transport.h"

namespace vescomm::internal {

// Contiguous elements of one of the caller's arrays.
struct Piece {
    std::byte *data = nullptr;
    std::int64_t elements = 0;
    bool operator==(const Piece &) const = default;
};

// The memory of one region of a schedule in this process.
struct RegionBinding {
    vescomm_type_t type = VESCOMM_F32;
    // Buffer, staging buffer, partial sums and inline data: a memory, and the first byte of the
    // region in every slab.
    MemoryId memory = 0;
    std::shared_ptr<Mapping> mapping;
    std::uint64_t offset_bytes = 0;
    std::uint64_t slot_bytes = 0;  // distance of two slots; 0: the memory has no slots
    // Source and output: the caller's array, as pieces that follow one another.
    std::vector<Piece> pieces = {};
};

// The tables by which ranks compare their calls: offsets in staging slot 0, from the first byte of
// the memory.
struct MatchTables {
    std::uint64_t pair_digests = 0;  // 32 bits for each local peer
    std::uint64_t receive_masks = 0;  // 32 bits for each rank: the expected signature, or 0
    std::uint64_t forwarded = 0;  // 64 bits for each forwarded block: run number and signature
};

// Registered memory: a pool of each rank of this node, which all of them map.
struct RegisteredPools {
    std::vector<const std::byte *> base;  // by local rank
    std::uint64_t bytes = 0;  // of each
};

// How an operation finds and publishes the arrays of the callers that lie in registered memory
// (execute/registered_arrays.h).
struct Registration {
    std::shared_ptr<const RegisteredPools> pools;  // nullptr: there is no registered memory
    std::uint64_t words = 0;  // offset of the published words, as of the tables
    // all_to_all_v: the block of this rank for each local peer, in elements of its source array.
    std::vector<Extent> blocks;
    // True: a source that overlaps the output counts as not registered, because this rank may write
    // its output while others still read its source. StagingBuffer::bind() decides.
    bool not_in_place = false;
};

// The pair areas in staging slot 0, in bytes from the first byte of the memory: each begins with an
// InlineFlag.
struct PairAreaBytes {
    std::uint64_t begin = 0;
    std::uint64_t stride = 0;
};

class MessageMatch;
class OneWayPace;
class ReadDistance;

// The compared description of a call.
struct MatchBinding {
    // 0: the ranks have compared their calls before. Messages: the sender's signature, which the
    // receiver expects.
    std::uint32_t signature = 0;
    PairDigests pair_digests;
    MatchTables tables;
    RecentCalls *recent_calls = nullptr;  // operations on arrays. Outlives the operation
    // All data comes from one rank, which waits for no other and compares its call with all.
    bool root_compares = false;
};

// A point-to-point message. What is pointed to outlives the operation.
struct MessageBinding {
    MessageQueue *queues = nullptr;  // sent: the queue of each slot
    MessageMatch *arrivals = nullptr;  // received: finds the message
    int source = 0;  // received: this rank, or VESCOMM_ANY_SOURCE
    std::uint32_t peer_channel = 0;  // of the flags that the peer raises for this rank
};

struct ReductionBinding {
    vescomm_op_t op = VESCOMM_SUM;
    int divisor = 1;  // finished sums are divided by it
    double factor = 1;  // with VESCOMM_PREMULTIPLIED_SUM
};

// Everything that binds a schedule, which is a value, to memory and transports.
struct Bindings {
    int rank = 0;
    Nodes nodes;
    RegionBinding source, buffer, output, staging, partial, inlined;
    std::uint64_t flight_word = 0;  // the flight recorder's word for the operation
    std::uint32_t channel = 0;  // of the flags that this rank raises, in slot 0
    // The counter by which the ranks of a node declare that they no longer read a memory. Staging
    // buffer: SlotSequences::released(), which rises when a run is complete. Buffers: number of
    // releases.
    SignalName release;
    // Operations on arrays: state of the staging buffer. Outlives the operation.
    SlotSequences *sequences = nullptr;
    // Operations on arrays with a root: of this rank. Outlives the operation.
    OneWayPace *pace = nullptr;
    // Operations on arrays: whether local peers are far. Outlives the operation.
    ReadDistance *distance = nullptr;
    MessageBinding message;
    MatchBinding match;
    PairAreaBytes pairs;
    Registration registration;
    // The ranks of this node together write more than the caches hold: copies to buffers and
    // outputs bypass the caches.
    bool streaming = false;
    ReductionBinding reduction;
    Transport *intra_node = nullptr;  // maps the ranks of this node
    std::vector<Transport *> transports;  // by peer

    bool is_message() const noexcept {
        return message.queues != nullptr || message.arrivals != nullptr;
    }
};

}  // namespace vescomm::internal
