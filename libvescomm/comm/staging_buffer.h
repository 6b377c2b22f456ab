// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "comm/memory.h"
#include "execute/bindings.h"
#include "execute/operation.h"
#include "execute/read_distance.h"
#include "schedule/problem.h"

namespace vescomm::internal {

// The memory through which the callers' arrays pass between ranks. It has slots, which operations
// use in turn: operation n of a communicator, from 1, uses slot (n - 1) mod staging_slots, once
// every rank of its node has released that slot after the operation that used it before. All ranks
// make the same calls in the same order, so their counts are equal and no operation on arrays needs
// the control plane.
//
// After the slots lies the word of ReadDistance.
//
//     slot 0: │ inline flag │ staging │ partial sums │ pair areas │ tables of the call matcher │
//     slot 1: ...
//
// Each slot has a channel. The schedule of an operation gives the flags their meaning.
class StagingBuffer {
public:
    // Collective, blocking.
    static std::shared_ptr<StagingBuffer> create(const std::shared_ptr<Communicator> &comm);

    const std::shared_ptr<Communicator> &comm() const { return comm_; }

    // Sets the parts of the staging buffer that a problem on arrays of `type` may use.
    void give_space(ArrayProblem &problem, vescomm_type_t type) const;
    // Binds a collective on arrays of `type`, or on a buffer through the staging buffer.
    void bind(Bindings &bindings, const AlgorithmEntry &algorithm, vescomm_type_t type);
    // The run of the next operation. `uncompared`: the signature of an operation that a rank may
    // complete without exchanging anything, 0 for all others. It becomes a part of the signatures
    // of all later operations, in which ranks compare it.
    Run next(std::uint32_t uncompared);
    // Within this node.
    ReadDistance &distance() { return distance_; }

private:
    // The parts of a slot, each on whole cache lines. The same on every rank.
    struct SlotParts {
        std::uint64_t partial;
        PairAreaBytes pairs;
        MatchTables tables;
        std::uint64_t registered_words;
        std::uint64_t bytes;

        explicit SlotParts(const Nodes &nodes);
    };

    explicit StagingBuffer(const std::shared_ptr<Communicator> &comm);

    std::shared_ptr<Communicator> comm_;
    const SlotParts parts_;
    std::shared_ptr<Memory> memory_;
    std::uint32_t channel_ = 0;  // of slot 0; the other slots have the next ones
    SlotSequences sequences_;
    ReadDistance distance_;
    std::shared_ptr<RecentCalls> recent_calls_;  // the communicator reads it
    std::uint64_t operations_ = 0;
    std::uint32_t history_ = 0;  // digest of the signatures given to next()
};

}  // namespace vescomm::internal
