// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Durations of events: sums by unit and by phase, and spans in the trace of the engine's
// communicator.
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

class EventTimes {
public:
    // `unit_names` must outlive this object.
    explicit EventTimes(std::span<const std::string> unit_names);

    // Takes the times of vescomm_trace_get_seconds() at the begin and the end of an event. `comm`
    // may be nullptr. A span for which there is no memory is missing in the trace.
    void add(Event event, std::uint64_t unit, double begin, double end,
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
    std::span<const std::string> unit_names_;
    std::vector<vescomm_fsdp_unit_counters_t> units_;
    PhaseTimes phases_;
    std::map<std::pair<Event, std::uint64_t>, std::string> span_names_;  // of events so far
};

}  // namespace vescomm::fsdp
