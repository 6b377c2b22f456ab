// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/examples/train_gpt/step_times.h"

#include <fmt/format.h>

namespace train_gpt {

StepTimes step_times(const std::vector<StepResult> &steps) {
    StepTimes sum;
    for (std::size_t i = steps.size() > 1 ? 1 : 0; i < steps.size(); ++i) {
        const vescomm_fsdp_step_summary_t &one = steps[i].summary;
        ++sum.steps;
        sum.step += one.seconds * 1e3;
        sum.program +=
            (one.seconds - one.exposed_seconds - one.norm_seconds - one.update_seconds) * 1e3;
        sum.gather += one.gather_seconds * 1e3;
        sum.reduce += one.reduce_seconds * 1e3;
        sum.agree += one.agree_seconds * 1e3;
        sum.norm += one.norm_seconds * 1e3;
        sum.update += one.update_seconds * 1e3;
        sum.gathers += static_cast<double>(one.gathers);
        sum.early_gathers += static_cast<double>(one.early_gathers);
        sum.gather_bytes += static_cast<double>(one.gather_bytes);
        sum.reduce_bytes += static_cast<double>(one.reduce_bytes);
        sum.replica_bytes += static_cast<double>(one.replica_bytes);
    }
    if (sum.steps == 0) return sum;
    for (double *member : {&sum.step, &sum.program, &sum.gather, &sum.reduce, &sum.agree, &sum.norm,
                           &sum.update, &sum.gathers, &sum.early_gathers, &sum.gather_bytes,
                           &sum.reduce_bytes, &sum.replica_bytes})
        *member /= sum.steps;
    return sum;
}

std::string text_of(const StepTimes &times) {
    std::string text = fmt::format("a step of rank 0, mean over {}\n", times.steps);
    const auto row = [&](const char *name, double milliseconds) {
        text += fmt::format("  {:<44}{:>11.3f} ms\n", name, milliseconds);
    };
    row("computation, and what else the program does", times.program);
    row("gathers of parameters: waits", times.gather);
    row("sums of gradients: waits", times.reduce);
    row("agreement of all ranks on the step: waits", times.agree);
    row("norm: passes over gradients", times.norm);
    row("optimizer", times.update);
    row("together", times.step);
    text += fmt::format(
        "  {:.1f} gathers, of which step() started {:.1f}; {:.0f} bytes gathered, {:.0f} reduced\n",
        times.gathers, times.early_gathers, times.gather_bytes,
        times.reduce_bytes + times.replica_bytes);
    return text;
}

}  // namespace train_gpt
