// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Counters of an engine as text for a collector. Pure.
#pragma once

#include <span>
#include <string>

#include "vescomm/fsdp.h"

namespace vescomm::fsdp {

struct EngineCounts {
    int rank = 0;
    std::uint64_t engine = 0;  // number in this process
    bool broken = false;
    vescomm_fsdp_counters_t counters;
    vescomm_fsdp_step_summary_t last;
    std::span<const std::string> unit_names;
    std::span<const vescomm_fsdp_unit_counters_t> units;
};

// Returns text in the Prometheus format 0.0.4.
std::string metrics_text(const EngineCounts &counts);

}  // namespace vescomm::fsdp
