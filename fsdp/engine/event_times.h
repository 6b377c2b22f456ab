// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Durations and bytes of events and transfers: sums by unit and by phase, and spans in the trace of
// the engine's communicator.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/event_log.h"
#include "fsdp/engine/phase_times.h"
#include "vescomm/fsdp.h"

namespace vescomm::fsdp {

// The phase of an event that no other phase interrupts.
PhaseTimes::Phase phase_of(Event event);

// Gathers of parameters, and sums of gradients over the ranks of a shard group or over replicas.
enum class Transfer { gather, reduce, replicas };

class EventTimes {
public:
    // Bytes of the transfers that an event has started, as the counters of the engine count them,
    // and seconds of the trainer.
    struct Costs {
        std::uint64_t gather_bytes = 0;
        std::uint64_t reduce_bytes = 0;
        std::uint64_t replica_bytes = 0;
        double exposed_seconds = 0;  // in the event, without norms and optimizers
        double wait_seconds = 0;  // part of them: waits for other ranks
    };
    // A transfer of a unit.
    struct Transferred {
        std::uint64_t unit = no_unit;
        std::uint64_t bytes = 0;
        double wait_seconds = 0;  // in which the trainer waited for it
    };

    // `unit_names` must outlive this object.
    explicit EventTimes(std::span<const std::string> unit_names);

    // Takes the times of vescomm_trace_get_seconds() at the begin and the end of an event. `comm`
    // may be nullptr. A span for which there is no memory is missing in the trace.
    void add(Event event, std::uint64_t unit, double begin, double end, const Costs &costs,
             vescomm_comm_t *comm) noexcept;
    // The same for a transfer. Those of a kind in one slot do not overlap.
    void add(Transfer kind, int slot, const Transferred &moved, double begin, double end,
             vescomm_comm_t *comm) noexcept;
    // Goes on with the counters of an engine with the same units.
    void take(const EventTimes &before) {
        units_ = before.units_;
        phases_.take(before.phases_);
    }

    PhaseTimes &phases() { return phases_; }
    const Phases &seconds() const { return phases_.seconds(); }

    std::vector<vescomm_fsdp_unit_counters_t> &units() { return units_; }
    const std::vector<vescomm_fsdp_unit_counters_t> &units() const { return units_; }

private:
    // nullptr: no unit.
    const char *name_of_unit(std::uint64_t unit) const;

    std::span<const std::string> unit_names_;
    std::vector<vescomm_fsdp_unit_counters_t> units_;
    PhaseTimes phases_;
    // Texts of spans so far, which later ones share: by event and unit, by kind and unit, and by
    // kind and slot.
    std::map<std::pair<Event, std::uint64_t>, std::string> span_names_;
    std::map<std::pair<Transfer, std::uint64_t>, std::string> transfer_names_;
    std::map<std::pair<Transfer, int>, std::string> rows_;
};

}  // namespace vescomm::fsdp
