// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/report/recommend.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "fsdp/error.h"
#include "fsdp/report/node_traffic.h"
#include "fsdp/report/traffic.h"
#include "fsdp/spec/mesh.h"

namespace vescomm::fsdp {

namespace {

// `replicated`: bytes of gradients of replicated parameters.
std::uint64_t wire_bytes(const vescomm_fsdp_report_t &report, int ranks, std::uint64_t replicated) {
    // A sum over replicas is a sum of shards, then a gather of them.
    const auto sum = [](std::uint64_t bytes, int replicas) {
        return 2 * (bytes - bytes / static_cast<std::uint64_t>(replicas));
    };
    return report.gather_bytes_per_step + report.reduce_bytes_per_step +
           sum(report.replica_bytes_per_step - replicated, ranks / report.shard_ranks) +
           sum(replicated, ranks) + report.partner_bytes_per_step;
}

Candidate plan_candidate(Spec spec, const std::string &preset, const Machine &machine,
                         int micro_batches) {
    spec.use_preset(preset);
    const ModelPlan plan = plan_model(spec, machine.ranks);
    vescomm_fsdp_report_t asked = vescomm_fsdp_report_init();
    asked.micro_batches = micro_batches;
    asked.node_ranks = machine.node_ranks;
    const vescomm_fsdp_report_t report = make_report(spec, plan, asked);
    return {preset, report,
            node_bytes_per_step(spec, plan, machine.node_ranks, report.micro_batches),
            wire_bytes(report, machine.ranks, replicated_gradient_bytes(plan))};
}

}  // namespace

std::vector<std::string> presets_for(int ranks) {
    std::vector<std::string> presets = {"ddp", "zero1", "zero2", "zero3"};
    // hsdp:1 is ddp, and hsdp and hpz of all ranks are zero3.
    const auto add = [&](const char *name, int smallest) {
        for (int size = smallest; size < ranks; ++size)
            if (ranks % size == 0) presets.push_back(name + std::to_string(size));
    };
    add("hsdp:", 2);
    add("hpz:", 1);
    return presets;
}

std::vector<Candidate> candidates(const Spec &spec, const Machine &machine, int micro_batches) {
    require_ranks(machine.ranks);
    if (machine.node_ranks < 1)
        refuse("node_ranks is {}; it must be at least 1", machine.node_ranks);
    std::vector<Candidate> all;
    std::optional<Failure> refusal;
    for (const std::string &preset : presets_for(machine.ranks)) {
        try {
            all.push_back(plan_candidate(spec, preset, machine, micro_batches));
        } catch (const Failure &error) {
            refusal = error;
        }
    }
    if (all.empty()) throw *refusal;
    return all;
}

const Candidate &recommend(const std::vector<Candidate> &all, std::uint64_t memory_bytes) {
    const Candidate *best = nullptr;
    const auto order = [](const Candidate &one) {
        return std::tuple(one.node_bytes, one.wire_bytes, one.needed_bytes());
    };
    for (const Candidate &one : all)
        if (one.needed_bytes() <= memory_bytes && (best == nullptr || order(one) < order(*best)))
            best = &one;
    if (best != nullptr) return *best;
    const Candidate &least = *std::ranges::min_element(all, {}, &Candidate::needed_bytes);
    refuse(
        "no preset fits in {} bytes on a rank; {} needs least, {} bytes: give {} bytes more, or "
        "use more ranks, fewer slots or smaller units",
        memory_bytes, least.preset, least.needed_bytes(), least.needed_bytes() - memory_bytes);
}

}  // namespace vescomm::fsdp
