// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "comm/memory.h"
#include "execute/bindings.h"
#include "execute/match/signature.h"
#include "execute/one_way_pace.h"
#include "execute/operation.h"
#include "execute/read_distance.h"
#include "schedule/problem.h"

namespace vescomm::internal {

// The memory through which the callers' arrays pass between ranks. It has slots of two kinds, which
// operations use in turn (execute/slot_sequences.h). All ranks make the same calls in the same
// order, so their counts are equal and no operation on arrays needs the control plane.
//
//     inline slots, 0 to 31:  │ inline flag │ inline data │
//     staging slots, 0 to 3:  │ staging │ partial sums │ pair areas │ tables of the call matcher │
//     the word of ReadDistance
//
// Each inline slot has a channel; one more has the counter of releases. The schedule of an
// operation gives the flags their meaning.
class StagingBuffer {
public:
    // Collective, blocking.
    static std::shared_ptr<StagingBuffer> create(const std::shared_ptr<Communicator> &comm);

    const std::shared_ptr<Communicator> &comm() const { return comm_; }

    // Sets the parts of the staging buffer that a problem on arrays of `type` may use.
    static void give_space(ArrayProblem &problem, vescomm_type_t type);
    // Binds a collective on arrays of `type`, or on a buffer through the staging buffer.
    void bind(Bindings &bindings, const AlgorithmEntry &algorithm, vescomm_type_t type);
    // The run of the next operation. `uncompared`: the signature of an operation that a rank may
    // complete without exchanging anything, 0 for all others. It becomes a part of the signatures
    // of all later operations, in which ranks compare it.
    Run next(std::uint32_t uncompared) noexcept {
        const std::uint32_t before = history_;
        if (uncompared != 0) history_ = Signature::history(history_, uncompared);
        const std::uint64_t sequence = ++operations_;
        return {.number = SlotSequences::run(sequence),
                .slot = SlotSequences::staging_slot(sequence),
                .channel = SlotSequences::inline_slot(sequence),
                .history = before,
                .sequence = sequence};
    }
    // Within this node.
    ReadDistance &distance() { return distance_; }

private:
    // The slots. The parts of a staging slot lie on whole cache lines; their offsets are those in
    // slot 0, from the first byte of the memory. The same on every rank.
    struct Slots {
        std::uint64_t staging;
        std::uint64_t partial;
        PairAreaBytes pairs;
        MatchTables tables;
        std::uint64_t registered_words;
        std::uint64_t bytes;  // of one staging slot
        std::uint64_t end;  // of the last one

        explicit Slots(const Nodes &nodes);
    };

    explicit StagingBuffer(const std::shared_ptr<Communicator> &comm);

    std::shared_ptr<Communicator> comm_;
    const Slots slots_;
    std::shared_ptr<Memory> memory_;
    std::uint32_t channel_ = 0;  // of inline slot 0; the others and the releases have the next ones
    SlotSequences sequences_;
    OneWayPace pace_;
    ReadDistance distance_;
    std::shared_ptr<RecentCalls> recent_calls_;  // the communicator reads it
    std::uint64_t operations_ = 0;
    std::uint32_t history_ = 0;  // digest of the signatures given to next()
};

}  // namespace vescomm::internal
