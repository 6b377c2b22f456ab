// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "execute/bases.h"
#include "execute/bindings.h"
#include "schedule/schedule.h"

namespace vescomm::internal {

// Elements that a local peer has registered, if it has: in this pool, at the offset that the peer
// publishes in this word, and `offset` bytes further.
struct RegisteredAddress {
    std::int32_t local = -1;  // local rank of the peer; -1: not registered in any run
    std::uint32_t word = 0;
    std::uint64_t offset = 0;
};

// A source of a copy, reduction or put.
struct BoundSource {
    Address address;
    RegisteredAddress registered;
};

// A reduction of sources that begin at BoundLane::sources[first_source]: a partial sum if
// `started`, then contributions, then partial sums.
struct BoundSum {
    std::uint32_t first_source = 0, contributions = 0, partials = 0;
    bool started = false;
    bool finish = false;  // see Step
};

// The destination of a put.
struct PutTarget {
    MemoryId memory = 0;
    std::uint64_t offset_bytes = 0;
    bool in_slot = false;  // the memory has slots
    // Eager put: the flag, and its value, by which the receiver grants the credit. 0: not eager.
    std::uint32_t credit_flag = 0, credit = 0;
};

// A step with its addresses, types and transport.
struct BoundStep {
    Action action;
    bool timed = false;  // large enough for its duration to be measured
    bool streaming = false;  // copy: bypass the caches
    bool to_staging =
        false;  // copy into the staging buffer, for local peers: bypass if they are far
    bool long_running = false;  // poll the inter-node transports after this step
    bool eager = false;  // see Step
    bool compares = false;  // wait: compare signatures with `peer` once it is over
    bool shows = false;  // signal to another node: carries the signature
    bool conditional = false;  // see Step
    When when = When::always;
    Region array = Region::source;  // of `when`
    std::uint8_t staged_sources = 0;  // copy, reduction: in staging buffers of peers; at most 255
    std::uint32_t flag = 0;
    std::uint32_t value = 0;
    int peer = 0;
    int final_peer = no_rank;  // see Step
    std::uint32_t forwarded = 0;  // with final_peer, or conditional wait: index in the table
    Transport *transport = nullptr;
    std::size_t count = 0;  // elements
    std::uint64_t bytes = 0;  // written, read by a reduction, or put
    vescomm_type_t to_type = 0;
    vescomm_type_t from_type = 0;
    Address to = {};
    BoundSource from = {};
    BoundSum sum = {};  // reduction
    PutTarget target = {};  // put
};
// docs/algorithms.md has the memory that long schedules take.
static_assert(sizeof(BoundStep) == 160);

struct BoundLane {
    std::vector<BoundStep> steps;
    std::vector<BoundSource> sources;
};

// A schedule bound to the memory and the transports of one rank. The executor runs it.
struct Program {
    std::vector<BoundLane> lanes;
    Bases bases;
    std::size_t max_sources = 0;  // of a reduction
    bool uses_inline_flag = false, uses_pair_flags = false;
    std::uint64_t inline_bytes = 0;  // that this rank writes behind its inline flag
    bool uses_registered = false;  // publishes, or reads, registered arrays

    // Arrays: needs the staging slot, or may; false: only the inline slot.
    bool uses_staging() const noexcept { return !uses_inline_flag; }
};

// Throws Error (UNSUPPORTED) if a step is impossible: no conversion between two types, for example.
Program bind(const Schedule &schedule, const Bindings &bindings);

}  // namespace vescomm::internal
