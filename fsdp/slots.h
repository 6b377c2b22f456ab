// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "fsdp/unit.h"

namespace vescomm::fsdp {

// The gathered parameters: a fixed number of slots, each a slab of the node, used in turn by units.
// Unit u uses slot u mod slots, at an address that never changes. Consecutive units of the model
// therefore use different slots, and the number of slots limits how far ahead units are fetched.
class ParameterSlots {
public:
    // `masters` holds this rank's shard of each unit. Collective.
    ParameterSlots(Communicator &comm, const std::vector<PlannedUnit> &units,
                   const std::vector<UnitShard> &shards, Precision precision, int slots);

    // Starts to gather a unit, unless it is already gathered or being gathered.
    void fetch(int unit);
    // Waits until the unit is gathered.
    void await(int unit);
    // Releases the slot of a unit that is no longer read, so that faster ranks may overwrite it.
    void release(int unit);
    // Marks all slots as stale, because the masters have changed.
    void invalidate();

    int count() const { return static_cast<int>(slots_.size()); }
    std::uint64_t bytes() const { return bytes_; }
    std::span<const void *const> pointers(int unit) const { return pointers_[unit]; }

private:
    struct Slot {
        Memory memory;
        int unit = -1;  // gathered or being gathered; -1: none
        bool under_way = false;  // the gather has not been waited for
        bool stale = false;  // the masters have changed since the gather started
    };

    Slot &slot_of(int unit) { return slots_[static_cast<std::size_t>(unit) % slots_.size()]; }

    std::vector<Slot> slots_;
    std::vector<Buffer> buffers_;  // by unit
    std::vector<Request> requests_;  // by unit
    std::vector<std::vector<const void *>> pointers_;
    std::uint64_t bytes_ = 0;
};

// The gradients to be summed: a fixed number of slots of this rank, used in turn by units.
class GradientSlots {
public:
    GradientSlots(Communicator &comm, const std::vector<PlannedUnit> &units,
                  const std::vector<UnitShard> &shards, Precision precision, int slots);

    // Waits until the unit's slot is free to be written.
    void prepare(int unit);
    // Starts to sum the unit's gradients, which must be written, into its gradient shard.
    void send(int unit);
    // Waits for all sums.
    void finish();

    std::uint64_t bytes() const { return bytes_; }
    std::span<void *const> pointers(int unit) const { return pointers_[unit]; }

private:
    struct Slot {
        Memory memory;
        int sending = -1;  // unit whose sum has not been waited for; -1: none
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
