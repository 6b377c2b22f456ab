// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The engine as programs and collectors observe it.
#include "fsdp/engine/engine.h"
#include "fsdp/report/metrics.h"

namespace vescomm::fsdp {

Engine::EventReading Engine::read_for_event() const noexcept {
    return {vescomm_trace_get_seconds(),
            {measures_.counters.gather_bytes, measures_.counters.reduce_bytes,
             measures_.counters.replica_bytes, 0, wiring_ ? wiring_->comms.waits().seconds() : 0},
            measures_.times.seconds().measure + measures_.times.seconds().update};
}

void Engine::add_time(Event event, std::uint64_t unit, const EventReading &begin) noexcept {
    const EventReading end = read_for_event();
    const double seconds = end.time - begin.time;
    measures_.counters.exposed_seconds += seconds;
    const EventTimes::Costs costs = {end.costs.gather_bytes - begin.costs.gather_bytes,
                                     end.costs.reduce_bytes - begin.costs.reduce_bytes,
                                     end.costs.replica_bytes - begin.costs.replica_bytes,
                                     seconds - (end.computed - begin.computed),
                                     end.costs.wait_seconds - begin.costs.wait_seconds};
    measures_.times.add(event, unit, begin.time, end.time, costs,
                        wiring_ ? wiring_->comms.world().get() : nullptr);
}

vescomm_fsdp_counters_t Engine::counters() const {
    vescomm_fsdp_counters_t counters = measures_.counters;
    counters.steps = optimizer_.steps();
    counters.optimizer_seconds =
        measures_.times.seconds().measure + measures_.times.seconds().update;
    counters.exposed_seconds -= counters.optimizer_seconds;
    counters.allocated_bytes = shards_.bytes() + optimizer_.bytes() + (copy_ ? copy_->bytes() : 0);
    if (wiring_)
        counters.allocated_bytes += wiring_->parameters.bytes() + wiring_->gradients->bytes() +
                                    wiring_->gradients->scratch_bytes();
    return counters;
}

StepSummary::Reading Engine::reading() const {
    return {vescomm_trace_get_seconds(), counters(), measures_.times.seconds()};
}

vescomm_fsdp_unit_counters_t Engine::unit_counters(std::uint64_t unit) const {
    states_.require_unit(unit);
    return measures_.times.units()[unit];
}

std::string Engine::metrics(std::uint64_t number) const {
    return metrics_text({.rank = rank_,
                         .engine = number,
                         .broken = failure_.has_value(),
                         .counters = counters(),
                         .last = measures_.summary.last(),
                         .unit_names = model_.unit_names,
                         .units = measures_.times.units()});
}

}  // namespace vescomm::fsdp
