// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The parts of an engine that depend on the kind of memory. An engine asks them once for each event
// and unit; the decisions are made elsewhere (Order, SlotPool, UnitStates, Watch).
#pragma once

#include <cstdint>

#include "fsdp/engine/event_log.h"
#include "vescomm/fsdp.h"

namespace vescomm::fsdp {

// Slots for gathered parameters. What "waits" says is true for the reader of the parameters: the
// trainer's thread on host memory, the trainer's stream on device memory.
class UnitMemory {
public:
    virtual ~UnitMemory() = default;

    // Starts to gather a unit into a slot. A gather in the slot completes first. Returns true if it
    // fills a secondary copy.
    virtual bool gather(int unit, int slot, const Announcement &announcement) = 0;
    // Waits until the unit in the slot is gathered.
    virtual void await(int slot) = 0;
    // Starts gathers whose parts are filled. Does not wait.
    virtual void advance() = 0;
    // Waits until no gather reads masters.
    virtual void await_all() = 0;
    // Drops secondary copies, because the masters change.
    virtual void forget_copies() = 0;
    // The reader has ended a use of the slot.
    virtual void closed(int slot) = 0;
    // Declares that this rank no longer reads the slot, so that faster ranks may overwrite it.
    virtual void release(int slot) = 0;
    // The address of a bucket of the unit in the slot.
    virtual void *data(int slot, std::size_t bucket) const = 0;
    virtual std::uint64_t bytes() const = 0;
};

// Slots for gradients that the trainer writes, and their sums in the gradient shards.
//
//     acquire ─► the trainer writes ─► send ─► (drained by the next acquire of the slot, or finish)
class GradientMemory {
public:
    virtual ~GradientMemory() = default;

    // Gives a unit a slot, unless it has one. Throws Failure if all slots are in use.
    virtual void acquire(int unit) = 0;
    // The memory of a gradient of a unit with a slot.
    virtual void *data(std::size_t parameter) const = 0;
    // Returns how the trainer writes a gradient, and counts it as written.
    virtual vescomm_fsdp_gradient_mode_t begin_write(std::size_t parameter) = 0;
    // Adds a contribution to a gradient.
    virtual void push(std::size_t parameter, const void *data, vescomm_type_t type) = 0;
    // The trainer has ended its work of a backward pass with the gradients of a unit.
    virtual void end_writes(int) {}
    // Starts to sum the gradients of a unit. Those that were not written are zero.
    virtual void send(int unit, const Announcement &announcement) = 0;
    // True: sums may be running.
    virtual bool sending() const = 0;
    // Completes all sums. The gradient shards of units that were not sent become zero if `last`.
    virtual void finish(bool last) = 0;
    // Sums the gradient shards over replicas.
    virtual void sum_over_replicas() = 0;
    // Sums the gradients of replicated parameters over all ranks.
    virtual void sum_replicated() = 0;
    // The next step begins: the first sum of a unit overwrites its gradient shard.
    virtual void begin_step() = 0;
    // Takes the slots from units whose gradients were not sent, and begins a step.
    virtual void drop() = 0;

    virtual std::uint64_t bytes() const = 0;
    virtual std::uint64_t scratch_bytes() const = 0;
};

// The norm of the gradient shards of all ranks of a shard group.
class NormMemory {
public:
    virtual ~NormMemory() = default;

    // Begins a micro-batch. `last`: its sums complete the gradients of the step.
    virtual void begin(bool last) = 0;
    // The gradients of all units are complete.
    virtual void finish() = 0;
    // Returns the exact sum of their squares. Collective.
    virtual double squares() = 0;
};

}  // namespace vescomm::fsdp
