// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/event_times.h"

#include <iterator>
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

const char *name_of(Transfer kind) {
    switch (kind) {
        case Transfer::gather:
            return "gather";
        case Transfer::reduce:
            return "reduce";
        default:
            return "reduce over replicas";
    }
}

std::string with_unit(const char *name, const char *unit) {
    return unit == nullptr ? name : std::string(name) + " " + unit;
}

std::string row_of(Transfer kind, int slot) {
    if (kind == Transfer::replicas) return "fsdp replicas";
    return std::string("fsdp ") + name_of(kind) + " slot " + std::to_string(slot);
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

const char *EventTimes::name_of_unit(std::uint64_t unit) const {
    return unit < unit_names_.size() ? unit_names_[unit].c_str() : nullptr;
}

void EventTimes::add(Event event, std::uint64_t unit, double begin, double end, const Costs &costs,
                     vescomm_comm_t *comm) noexcept {
    if (unit < units_.size())
        if (double *seconds = seconds_of(units_[unit], event)) *seconds += end - begin;
    if (comm == nullptr || (!traced(event) && costs.wait_seconds == 0)) return;
    try {
        std::string &name = span_names_[{event, unit}];
        if (name.empty()) name = with_unit(name_of(event), name_of_unit(unit));
        const vescomm_trace_argument_t arguments[] = {
            {"gather_bytes", nullptr, static_cast<double>(costs.gather_bytes)},
            {"reduce_bytes", nullptr, static_cast<double>(costs.reduce_bytes)},
            {"replica_bytes", nullptr, static_cast<double>(costs.replica_bytes)},
            {"exposed_seconds", nullptr, costs.exposed_seconds},
            {"wait_seconds", nullptr, costs.wait_seconds},
            {"unit", name_of_unit(unit), 0}};
        vescomm_trace_add_span_with(comm, name.c_str(), "fsdp", begin, end, arguments,
                                    std::size(arguments) - (unit < unit_names_.size() ? 0 : 1));
    } catch (const std::bad_alloc &) {
    }
}

void EventTimes::add(Transfer kind, int slot, const Transferred &moved, double begin, double end,
                     vescomm_comm_t *comm) noexcept {
    if (moved.unit < units_.size())
        (kind == Transfer::gather ? units_[moved.unit].gather_wait_seconds
                                  : units_[moved.unit].reduce_wait_seconds) += moved.wait_seconds;
    try {
        const char *unit = name_of_unit(moved.unit);
        const vescomm_trace_argument_t arguments[] = {
            {"bytes", nullptr, static_cast<double>(moved.bytes)},
            {"wait_seconds", nullptr, moved.wait_seconds},
            {"unit", unit, 0}};
        std::string &name = transfer_names_[{kind, moved.unit}];
        if (name.empty()) name = with_unit(name_of(kind), unit);
        std::string &row = rows_[{kind, slot}];
        if (row.empty()) row = row_of(kind, slot);
        vescomm_trace_add_span_with(comm, name.c_str(), row.c_str(), begin, end, arguments,
                                    std::size(arguments) - (unit != nullptr ? 0 : 1));
    } catch (const std::bad_alloc &) {
    }
}

}  // namespace vescomm::fsdp
