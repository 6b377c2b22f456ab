// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The transfers in the slots of one kind, from their start to their end: each becomes a span, and
// its waits count for its unit.
#pragma once

#include <cstdint>
#include <vector>

#include "fsdp/engine/comms.h"
#include "fsdp/engine/event_times.h"

namespace vescomm::fsdp {

class Transfers {
public:
    // The references must outlive the object.
    Transfers(Transfer kind, std::size_t slots, Comms &comms, EventTimes &times)
        : kind_(kind), comms_(comms), times_(times), slots_(slots) {}

    // Begins a transfer in a slot. That before has ended. `bytes`: as the counters of the engine
    // count them.
    void begin(int slot, std::uint64_t bytes, std::uint64_t unit = no_unit) {
        slots_[slot] = {{unit, bytes, 0}, vescomm_trace_get_seconds()};
    }
    // Counts the waits of the result's lifetime for the transfer in a slot.
    WaitClock::Scope waits(int slot) { return {comms_.waits(), slots_[slot].moved.wait_seconds}; }
    // The transfer is complete.
    void end(int slot) noexcept {
        times_.add(kind_, slot, slots_[slot].moved, slots_[slot].begin, vescomm_trace_get_seconds(),
                   comms_.world().get());
    }

private:
    struct Slot {
        EventTimes::Transferred moved;
        double begin = 0;
    };

    Transfer kind_;
    Comms &comms_;
    EventTimes &times_;
    std::vector<Slot> slots_;
};

}  // namespace vescomm::fsdp
