// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/step_summary.h"

namespace vescomm::fsdp {

void StepSummary::complete(const Reading &begin, const Reading &end,
                           const vescomm_fsdp_step_t &step) {
    const auto counted = [&](auto vescomm_fsdp_counters_t::*member) {
        return end.counters.*member - end_.counters.*member;
    };
    const auto timed = [&](PhaseTimes::Phase phase) {
        return end.phases.*phase - end_.phases.*phase;
    };
    last_.skipped = step.skipped;
    last_.step = step.step;
    last_.norm = step.norm;
    last_.seconds = end.time - end_.time;
    last_.step_seconds = end.time - begin.time;
    last_.exposed_seconds = counted(&vescomm_fsdp_counters_t::exposed_seconds);
    last_.gather_seconds = timed(&Phases::gather);
    last_.reduce_seconds = timed(&Phases::reduce);
    last_.agree_seconds = timed(&Phases::agree);
    last_.norm_seconds = timed(&Phases::measure);
    last_.update_seconds = timed(&Phases::update);
    last_.gathers = counted(&vescomm_fsdp_counters_t::gathers);
    last_.early_gathers = end.counters.gathers - begin.counters.gathers;
    last_.gather_bytes = counted(&vescomm_fsdp_counters_t::gather_bytes);
    last_.reduce_bytes = counted(&vescomm_fsdp_counters_t::reduce_bytes);
    last_.replica_bytes = counted(&vescomm_fsdp_counters_t::replica_bytes);
    last_.deviations = counted(&vescomm_fsdp_counters_t::deviations);
    end_ = end;
}

}  // namespace vescomm::fsdp
