// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Opens and closes units: asks the order what comes next and the pool for slots, and gathers.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fsdp/engine/order.h"
#include "fsdp/engine/parts.h"
#include "fsdp/engine/slot_pool.h"
#include "fsdp/spec/model_plan.h"
#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

class GatheredUnits {
public:
    // The references must outlive the object. `position`: of this rank.
    GatheredUnits(const Spec &spec, const ModelPlan &plan, int position,
                  std::span<const std::string> unit_names, std::unique_ptr<UnitMemory> slots,
                  vescomm_fsdp_counters_t &counters,
                  std::vector<vescomm_fsdp_unit_counters_t> &unit_counters);

    void begin(bool evaluation);
    void end();

    // The reason to open a unit. Recomputation is not part of the order.
    enum class Use { forward, backward, recomputation };

    // Gathers a unit and the units whose parameters it shares, waits, and prefetches.
    void open(std::size_t unit, Use use, const Announcement &announcement);
    // Starts to gather them.
    void start(std::size_t unit, const Announcement &announcement);
    // Ends an open() or a start().
    void close(std::size_t unit);
    // Starts gathers that wait for secondary copies, as far as these are filled.
    void advance() { slots_->advance(); }
    // Empties all slots, because the masters change.
    void forget();
    // The units that the next micro-batch of training gathers first, in this order.
    std::vector<int> first_units() const;
    // Starts to gather one of them, unless it is in a slot. Its masters are those of the next step.
    void start_first(int unit, std::span<const int> first, const Announcement &announcement);
    // Waits for all gathers. Throws Failure.
    void complete() { slots_->await_all(); }

    // True if the unit is open, or was started.
    bool holds(std::size_t unit) const { return pool_.pins(static_cast<int>(unit)) > 0; }
    // The address of a parameter of a unit that it holds. Waits if the gather is running.
    void *data(std::size_t parameter);
    std::uint64_t bytes() const { return slots_->bytes(); }

private:
    void pin(std::size_t unit, std::span<const int> soon, const Announcement &announcement);
    void gather(int unit, int slot, const Announcement &announcement);

    const ModelPlan &plan_;
    std::span<const std::string> unit_names_;
    int position_;
    vescomm_fsdp_counters_t &counters_;
    std::vector<vescomm_fsdp_unit_counters_t> &unit_counters_;
    Order order_;
    bool running_ = false;  // a micro-batch
    SlotPool pool_;
    std::unique_ptr<UnitMemory> slots_;
};

}  // namespace vescomm::fsdp
