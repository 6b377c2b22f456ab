// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/examples/train_gpt/recommendation.h"

#include <fmt/format.h>

namespace train_gpt {

std::string recommendation_text(const vescomm::fsdp::Spec &spec, const vescomm_comm_info_t &comm,
                                double mebibytes, int micro_batches) {
    constexpr double mebibyte = 1 << 20;
    const auto in_mebibytes = [](std::uint64_t bytes) {
        return static_cast<double>(bytes) / mebibyte;
    };
    // Nodes with fewer ranks than the others are taken for full ones.
    const int node_ranks = (comm.ranks + comm.nodes - 1) / comm.nodes;
    vescomm_fsdp_report_t report = vescomm_fsdp_report_init();
    report.micro_batches = micro_batches;
    try {
        const vescomm_fsdp_recommendation_t best = spec.recommend(
            comm.ranks, node_ranks, static_cast<std::uint64_t>(mebibytes * mebibyte), &report);
        return fmt::format(
            "recommended: {} of {} presets that fit ({} exist)\n"
            "  memory of a rank, MiB: {:.1f}; in use in forward {:.1f}, backward {:.1f}, step "
            "{:.1f}\n"
            "  traffic of a step, MiB: {:.1f} between nodes, {:.1f} of a rank\n\n",
            best.preset, best.fitting, best.candidates, in_mebibytes(best.peak_bytes),
            in_mebibytes(report.forward_bytes), in_mebibytes(report.backward_bytes),
            in_mebibytes(report.step_bytes), in_mebibytes(best.node_bytes_per_step),
            in_mebibytes(best.wire_bytes_per_step));
    } catch (const vescomm::Error &error) {
        return fmt::format("recommended: none: {}\n\n", error.what());
    }
}

}  // namespace train_gpt
