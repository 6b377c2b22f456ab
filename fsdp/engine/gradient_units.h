// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The units whose gradients the trainer writes: their slots, what is written, and which units have
// a sum in this step. Decisions only; the memory is that of a GradientMemory.
//
//     open ─► the trainer writes ─► close ─► its sum, which the first time overwrites the shard
#pragma once

#include <cstddef>
#include <vector>

#include "fsdp/engine/gradient_writes.h"
#include "fsdp/engine/model.h"
#include "fsdp/engine/slot_pool.h"

namespace vescomm::fsdp {

class GradientUnits {
public:
    // `model` must outlive the object.
    explicit GradientUnits(const Model &model);

    bool is_open(int unit) const { return pool_.pins(unit) > 0; }
    // The slot of a unit, or SlotPool::none. A unit without elements needs none.
    int slot_of(int unit) const { return pool_.slot_of(unit); }
    // The slot of the unit that has the gradient of a parameter.
    int slot_for(std::size_t parameter) const;
    // The begin of the gradient of a parameter in its bucket, in bytes.
    std::size_t offset_of(std::size_t parameter) const;

    // Gives a unit a slot, and returns it. Throws Failure if all of them are in use.
    int open(int unit);
    // Takes the slot from a unit, which will be summed. Returns true if a sum of this step is in
    // its gradient shard already.
    bool close(int unit);

    GradientWrites &writes() { return writes_; }

    // Calls body(bucket) for the trainable buckets of units that have no sum in this step.
    template <typename Body>
    void for_unsummed(Body &&body) const {
        for (std::size_t unit = 0; unit < summed_.size(); ++unit) {
            if (summed_[unit]) continue;
            for (const std::size_t bucket : model_.plan.of_unit[unit])
                if (model_.plan.buckets[bucket].trainable) body(bucket);
        }
    }

    void begin_step();
    // Takes the slots from all units, and begins a step.
    void drop();

private:
    const Model &model_;
    SlotPool pool_;
    GradientWrites writes_;
    std::vector<bool> summed_;  // by unit: its gradient shard has a sum of this step
};

}  // namespace vescomm::fsdp
