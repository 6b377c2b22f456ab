// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "comm/memory.h"
#include "execute/bindings.h"
#include "execute/operation.h"
#include "schedule/problem.h"

namespace vescomm {

// The memory through which arrays of the callers pass between ranks, in slots that operations take
// in turn: the n-th operation of a communicator has slot n mod slots, once everyone on its node has
// completed the one that had it before. All ranks make the same calls in the same order, so all
// count alike, and no operation on arrays needs the control plane.
//
//     slot 0: │ eager flag │ stage │ partial sums │ pair digests │ wants │ relays │  slot 1: │
//     eager flag │
//     ...
//
// Each slot has a channel; what is the flags' meaning, the schedule of the operation says.
class StagingBuffer {
public:
    // Collective, blocking.
    static std::shared_ptr<StagingBuffer> create(const std::shared_ptr<Communicator> &comm);

    const std::shared_ptr<Communicator> &comm() const { return comm_; }

    // What a problem may use.
    void give_room(Problem &problem, vescomm_type_t type) const;
    void bind(Bindings &bindings, vescomm_type_t type);
    // The turn of the next operation. `signature`: not 0 when a rank may complete it without any
    // exchange, and so without a comparison. Then it becomes a part of the signatures of all later
    // operations, in which ranks compare it.
    Run next(std::uint32_t signature);

private:
    explicit StagingBuffer(const std::shared_ptr<Communicator> &comm);

    std::shared_ptr<Communicator> comm_;
    std::uint64_t slot_bytes_ = 0;
    std::shared_ptr<Memory> memory_;
    std::uint32_t channel_ = 0;  // the first of as many as there are slots
    std::shared_ptr<Turns> turns_;
    std::uint64_t operations_ = 0;
    std::uint32_t history_ = 0;  // digest of the signatures that were given to next()
};

}  // namespace vescomm
