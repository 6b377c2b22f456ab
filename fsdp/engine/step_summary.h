// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The summary of the last step: differences of counters between the ends of two steps.
#pragma once

#include <cstdint>

#include "fsdp/engine/phase_times.h"
#include "vescomm/fsdp.h"

namespace vescomm::fsdp {

class StepSummary {
public:
    // The state of the counters at some time.
    struct Reading {
        double time = 0;  // of vescomm_trace_get_seconds()
        vescomm_fsdp_counters_t counters = vescomm_fsdp_counters_init();
        Phases phases;
    };

    // An engine has been created.
    void begin(const Reading &now) { end_ = now; }
    // vescomm_fsdp_step() has succeeded.
    void complete(const Reading &begin, const Reading &end, const vescomm_fsdp_step_t &step);

    const vescomm_fsdp_step_summary_t &last() const { return last_; }

private:
    Reading end_;  // of the step before
    vescomm_fsdp_step_summary_t last_ = vescomm_fsdp_step_summary_init();
};

}  // namespace vescomm::fsdp
