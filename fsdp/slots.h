// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "fsdp/unit.h"

namespace vescomm::fsdp {

// The gathered parameters: a fixed number of slots, each a slab of the node, which units take in
// turn. Unit u lives in slot u mod slots, at an address that never changes, so the units next to
// one another in the model never wait for each other's slot, and the number of slots limits how far
// ahead is fetched.
class ParameterSlots {
public:
    // `masters` holds this rank's shard of each unit. Collective.
    ParameterSlots(Communicator &comm, const std::vector<PlannedUnit> &units,
                   const std::vector<UnitShard> &shards, Precision precision, int slots);

    // Starts gathering a unit unless it is in its slot, or on its way, already.
    void fetch(int unit);
    // Waits until it is there.
    void await(int unit);
    // Nothing reads the unit any more: faster ranks may overwrite it.
    void release(int unit);
    // The masters have changed: what is in the slots is stale.
    void invalidate();

    int count() const { return static_cast<int>(slots_.size()); }
    std::uint64_t bytes() const { return bytes_; }
    std::span<const void *const> pointers(int unit) const { return pointers_[unit]; }

private:
    struct Slot {
        Memory memory;
        int unit = -1;  // that is there or on its way
        bool under_way = false;
        bool stale = false;
    };

    Slot &slot_of(int unit) { return slots_[static_cast<std::size_t>(unit) % slots_.size()]; }

    std::vector<Slot> slots_;
    std::vector<Buffer> buffers_;  // by unit
    std::vector<Request> requests_;  // by unit
    std::vector<std::vector<const void *>> pointers_;
    std::uint64_t bytes_ = 0;
};

// The gradients on their way out: slots of this rank's own, which units take in turn likewise.
class GradientSlots {
public:
    GradientSlots(Communicator &comm, const std::vector<PlannedUnit> &units,
                  const std::vector<UnitShard> &shards, Precision precision, int slots);

    // Waits until the unit's slot is free to be written.
    void prepare(int unit);
    // The unit's gradients are written: starts summing them into its gradient shard.
    void send(int unit);
    // Waits for all sums.
    void finish();

    std::uint64_t bytes() const { return bytes_; }
    std::span<void *const> pointers(int unit) const { return pointers_[unit]; }

private:
    struct Slot {
        Memory memory;
        int sending = -1;  // unit, or none
    };

    Slot &slot_of(int unit) { return slots_[static_cast<std::size_t>(unit) % slots_.size()]; }
    void finish(Slot &slot);

    const std::vector<PlannedUnit> &units_;
    std::size_t element_bytes_;
    std::vector<Slot> slots_;
    std::vector<Buffer> buffers_;
    std::vector<Request> requests_;
    std::vector<std::vector<void *>> pointers_;
    std::uint64_t bytes_ = 0;
};

}  // namespace vescomm::fsdp
