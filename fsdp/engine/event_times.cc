// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/event_times.h"

#include <new>

namespace vescomm::fsdp {

namespace {

// Events that only return a pointer, or come very often.
bool traced(Event event) {
    return event != Event::parameter && event != Event::gradient && event != Event::progress;
}

double *seconds_of(vescomm_fsdp_unit_counters_t &unit, Event event) {
    switch (event) {
        case Event::pre_forward:
        case Event::post_forward:
            return &unit.forward_seconds;
        case Event::pre_backward:
        case Event::post_backward:
            return &unit.backward_seconds;
        case Event::unshard:
        case Event::reshard:
            return &unit.explicit_seconds;
        case Event::update:
            return &unit.update_seconds;
        default:
            return nullptr;
    }
}

}  // namespace

PhaseTimes::Phase phase_of(Event event) {
    switch (event) {
        case Event::pre_forward:
        case Event::post_forward:
        case Event::pre_backward:
        case Event::unshard:
        case Event::reshard:
        case Event::parameter:
            return &Phases::gather;
        case Event::post_backward:
        case Event::finish_backward:
            return &Phases::reduce;
        case Event::norm:
        case Event::step:
            return &Phases::agree;
        default:
            return &Phases::none;
    }
}

EventTimes::EventTimes(std::span<const std::string> unit_names)
    : unit_names_(unit_names), units_(unit_names.size(), vescomm_fsdp_unit_counters_init()) {}

void EventTimes::add(Event event, std::uint64_t unit, double begin, double end,
                     vescomm_comm_t *comm) noexcept {
    if (unit < units_.size())
        if (double *seconds = seconds_of(units_[unit], event)) *seconds += end - begin;
    if (comm == nullptr || !traced(event)) return;
    try {
        std::string &name = span_names_[{event, unit}];
        if (name.empty()) {
            name = name_of(event);
            if (unit < unit_names_.size()) name += " " + unit_names_[unit];
        }
        vescomm_trace_add_span(comm, name.c_str(), "fsdp", begin, end);
    } catch (const std::bad_alloc &) {
    }
}

}  // namespace vescomm::fsdp
