// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/report/phases.h"

#include <vector>

#include "fsdp/engine/prefetch.h"
#include "fsdp/report/traffic.h"

namespace vescomm::fsdp {

namespace {

// The slots into which a step starts to gather the first units of the next one.
struct EarlyGathers {
    std::uint64_t slot_bytes = 0;
    bool any = false;
    bool quantised = false;  // codes are used
};

EarlyGathers early_gathers(const Spec &spec, const ModelPlan &plan) {
    EarlyGathers early;
    SlotPool pool(plan.slot_ranges, plan.slots.size());
    const Order order(predicted_order(spec), static_cast<int>(spec.units().size()));
    const std::vector<int> first = needed_first(order, plan);
    for (const int unit : first) {
        const SlotPool::Opened opened = pool.prefetch(unit, first);
        if (!opened.gather) continue;
        const auto slot = static_cast<std::size_t>(opened.slot);
        early.any = true;
        early.slot_bytes += plan.slots[slot] + plan.quantised_slots[slot];
        early.quantised =
            early.quantised || plan.quantised_bytes_of(static_cast<std::size_t>(unit)) > 0;
    }
    return early;
}

}  // namespace

void set_phases(vescomm_fsdp_report_t &report, const Spec &spec, const ModelPlan &plan,
                std::uint64_t parameter_codes, std::uint64_t copied_gradient_bytes) {
    // Masters and states, also of the partner copy, and replicated parameters.
    const std::uint64_t kept = report.persistent_bytes - report.gradient_bytes +
                               report.converted_bytes + report.partner_bytes + report.staged_bytes -
                               copied_gradient_bytes - report.file_bytes;
    const std::uint64_t gathered = report.slot_bytes + parameter_codes + report.secondary_bytes;
    std::uint64_t earlier_sums = 0;  // of earlier micro-batches
    if (report.micro_batches > 1)
        earlier_sums =
            plan.mesh.keep_gradients ? report.gradient_slot_bytes : report.gradient_bytes;
    report.forward_bytes = kept + gathered + earlier_sums;
    report.backward_bytes = kept + gathered + report.gradient_bytes + report.gradient_slot_bytes +
                            report.scratch_bytes + report.partial_sum_bytes + report.code_bytes -
                            parameter_codes;
    const EarlyGathers early = early_gathers(spec, plan);
    report.step_bytes = kept + report.gradient_bytes + copied_gradient_bytes +
                        report.widened_bytes + early.slot_bytes +
                        (early.any ? report.secondary_bytes : 0) +
                        (early.quantised ? parameter_codes : 0);
}

}  // namespace vescomm::fsdp
