// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Traffic between nodes, compared with a count of every message, and the preset that is
// recommended, compared with a sorted list of all.
#include "fsdp/report/recommend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "fsdp/error.h"
#include "fsdp/report/node_traffic.h"
#include "fsdp/report/traffic.h"
#include "fsdp/spec/gather_parts.h"

namespace vescomm::fsdp {
namespace {

struct Variant {
    const char *name;
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    bool experts = false;
    int micro_batches = 1;
};

std::vector<Variant> variants() {
    std::vector<Variant> all(6);
    all[0].name = "plain";
    all[1].name = "bf16, two micro-batches";
    all[1].options.compute_type = VESCOMM_BF16;
    all[1].micro_batches = 2;
    all[2].name = "8 bits";
    all[2].options.gather_type = all[2].options.reduce_type = VESCOMM_I8;
    all[3].name = "experts";
    all[3].options.expert_ranks = 2;
    all[3].experts = true;
    all[4].name = "partner copies";
    all[4].options.partner_copy = 1;
    all[5].name = "experts in 8 bits";
    all[5].options = all[2].options;
    all[5].options.expert_ranks = 2;
    all[5].experts = true;
    return all;
}

Spec spec_of(const Variant &variant) {
    Spec spec(variant.options);
    for (int unit = 0; unit < 4; ++unit) {
        const bool experts = variant.experts && unit == 2;
        spec.add_unit("unit." + std::to_string(unit), experts ? VESCOMM_FSDP_EXPERTS : 0);
        const std::int64_t dense[] = {17 + unit, 6}, of_experts[] = {4, 9, 31};
        vescomm_fsdp_parameter_t parameter = vescomm_fsdp_parameter_init();
        parameter.name = "weight";
        parameter.shape = experts ? of_experts : dense;
        parameter.dimensions = experts ? 3 : 2;
        spec.add_parameter(static_cast<std::size_t>(unit), parameter);
        parameter.name = "frozen";
        parameter.flags = VESCOMM_FSDP_FROZEN;
        if (unit == 1) spec.add_parameter(static_cast<std::size_t>(unit), parameter);
    }
    spec.complete();
    return spec;
}

// Counts messages between nodes one by one.
class Messages {
public:
    Messages(const ModelPlan &plan, int node_ranks)
        : plan_(plan), mesh_(plan.mesh), node_ranks_(node_ranks) {}

    std::uint64_t of_gather(const Bucket &bucket) const {
        std::set<std::pair<int, int>> seen;  // the part of a rank, at a node
        std::uint64_t bytes = 0;
        for (int to = 0; to < mesh_.ranks; ++to)
            for (int part = 0; part < mesh_.gather_ranks_of(bucket.kind()); ++part) {
                const int from = mesh_.rank_of_part(to, part, bucket.kind());
                if (node(from) != node(to) && seen.emplace(from, node(to)).second)
                    bytes += part_bytes(mesh_, bucket, mesh_.position(from));
            }
        return bytes;
    }

    std::uint64_t of_fill(const Bucket &bucket) const {
        std::uint64_t bytes = 0;
        if (mesh_.secondary_ranks == 0) return 0;
        for (int from = 0; from < mesh_.ranks; ++from)
            for (int to = 0; to < mesh_.ranks; ++to)
                if (mesh_.group(from) == mesh_.group(to) && node(from) != node(to) &&
                    mesh_.part_has(mesh_.position(to), mesh_.position(from)))
                    bytes += transfer_bytes(bucket) * static_cast<std::uint64_t>(transfer_elements(
                                                          bucket, mesh_.position(from)));
        return bytes;
    }

    std::uint64_t of_sum(const Bucket &bucket) const {
        std::set<std::pair<int, int>> seen;  // the sum of a node, for a rank
        std::uint64_t bytes = 0;
        if (!bucket.trainable) return 0;
        for (int from = 0; from < mesh_.ranks; ++from)
            for (int to = 0; to < mesh_.ranks; ++to) {
                if (mesh_.group(from) != mesh_.group(to) || node(from) == node(to)) continue;
                if (from % bucket.expert_ranks != to % bucket.expert_ranks) continue;
                if (bucket.sums_quantised()) bytes += bucket.code_bytes(mesh_.position(to));
                else if (seen.emplace(node(from), to).second)
                    bytes += static_cast<std::uint64_t>(bucket.shard(mesh_.position(to))) * 4;
            }
        return bytes;
    }

    // Node 0 of the replicas sums, and the others get the result.
    std::uint64_t of_replicas() const {
        std::uint64_t bytes = 0;
        if (mesh_.replicas() == 1) return 0;
        for (int position = 0; position < mesh_.shard_ranks; ++position) {
            std::set<int> nodes;
            for (int rank = position; rank < mesh_.ranks; rank += mesh_.shard_ranks)
                if (nodes.insert(node(rank)).second && nodes.size() > 1)
                    bytes += 2 * replica_bytes(plan_, position);
        }
        return bytes;
    }

private:
    int node(int rank) const { return rank / node_ranks_; }

    const ModelPlan &plan_;
    const Mesh &mesh_;
    int node_ranks_;
};

TEST(NodeTraffic, IsThatOfEveryMessage) {
    int compared = 0;
    for (const Variant &variant : variants())
        for (int ranks = 1; ranks <= 8; ++ranks)
            for (const std::string &preset : presets_for(ranks)) {
                Spec spec = spec_of(variant);
                spec.use_preset(preset);
                ModelPlan plan;
                try {
                    plan = plan_model(spec, ranks);
                } catch (const Failure &) {
                    continue;  // the options do not permit the preset
                }
                const auto times = gathers_per_step(spec, plan, variant.micro_batches);
                for (int node_ranks = 1; node_ranks <= ranks + 1; ++node_ranks) {
                    const Messages messages(plan, node_ranks);
                    std::uint64_t bytes = messages.of_replicas();
                    for (const Bucket &bucket : plan.buckets) {
                        bytes += times[bucket.unit] * messages.of_gather(bucket);
                        if (times[bucket.unit] > 0) bytes += messages.of_fill(bucket);
                        bytes += messages.of_sum(bucket) *
                                 (plan.mesh.keep_gradients
                                      ? 1
                                      : static_cast<std::uint64_t>(variant.micro_batches));
                    }
                    const std::uint64_t found =
                        node_bytes_per_step(spec, plan, node_ranks, variant.micro_batches);
                    if (node_ranks >= ranks) {
                        EXPECT_EQ(found, 0);
                    }
                    // Each rank has its copy on another node, if nodes have equal sizes.
                    if (variant.options.partner_copy != 0 && plan.mesh.replicas() == 1 &&
                        ranks % node_ranks == 0 && ranks > node_ranks)
                        for (int rank = 0; rank < ranks; ++rank)
                            bytes += gradient_shard_bytes(plan, plan.mesh.position(rank));
                    if (variant.options.partner_copy != 0 && ranks % node_ranks != 0) continue;
                    EXPECT_EQ(found, bytes) << variant.name << ", " << preset << " on " << ranks
                                            << " ranks, " << node_ranks << " on a node";
                    ++compared;
                }
            }
    EXPECT_GT(compared, 1000);
}

TEST(Recommend, KnowsAllPresets) {
    EXPECT_EQ(presets_for(1), (std::vector<std::string>{"ddp", "zero1", "zero2", "zero3"}));
    EXPECT_EQ(presets_for(6), (std::vector<std::string>{"ddp", "zero1", "zero2", "zero3", "hsdp:2",
                                                        "hsdp:3", "hpz:1", "hpz:2", "hpz:3"}));
}

TEST(Recommend, ReturnsTheFirstOfTheSortedListThatFits) {
    for (const Variant &variant : variants())
        for (const int ranks : {1, 2, 3, 4, 6, 8})
            for (int node_ranks = 1; node_ranks <= ranks; node_ranks *= 2) {
                const Spec spec = spec_of(variant);
                std::vector<Candidate> all;
                try {
                    all = candidates(spec, {ranks, node_ranks}, variant.micro_batches);
                } catch (const Failure &error) {
                    // Experts need an even number of ranks.
                    EXPECT_TRUE(variant.experts && ranks % 2 == 1) << error.what();
                    continue;
                }
                std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::size_t>>
                    sorted;
                std::uint64_t least = all[0].report.peak_bytes;
                for (std::size_t i = 0; i < all.size(); ++i) {
                    sorted.emplace_back(all[i].node_bytes, all[i].wire_bytes,
                                        all[i].report.peak_bytes, i);
                    least = std::min(least, all[i].report.peak_bytes);
                }
                std::ranges::sort(sorted);
                for (const Candidate &limit : all)
                    for (const int more : {-1, 0, 1}) {
                        const std::uint64_t memory =
                            limit.report.peak_bytes + static_cast<std::uint64_t>(more);
                        if (memory < least) continue;
                        const auto first = std::ranges::find_if(
                            sorted, [&](const auto &one) { return std::get<2>(one) <= memory; });
                        ASSERT_NE(first, sorted.end());
                        EXPECT_EQ(recommend(all, memory).preset, all[std::get<3>(*first)].preset);
                    }
                try {
                    recommend(all, least - 1);
                    ADD_FAILURE() << "nothing fits";
                } catch (const Failure &error) {
                    EXPECT_EQ(error.status, VESCOMM_ERROR_INVALID_ARGUMENT);
                    EXPECT_NE(std::string(error.what()).find(std::to_string(least) + " bytes"),
                              std::string::npos)
                        << error.what();
                }
            }
}

TEST(Recommend, CountsLessForShardsWithinANode) {
    const Spec spec = spec_of({.name = ""});
    const auto all = candidates(spec, {8, 4}, 1);
    const auto find = [&](const char *preset) {
        return *std::ranges::find(all, std::string(preset), &Candidate::preset);
    };
    EXPECT_LT(find("hsdp:4").node_bytes, find("zero3").node_bytes);
    EXPECT_LT(find("hpz:4").node_bytes, find("zero3").node_bytes);
    EXPECT_LT(find("hsdp:4").report.persistent_bytes, find("ddp").report.persistent_bytes);
    EXPECT_EQ(find("ddp").report.gather_bytes_per_step, 0);
    // n replicas of P bytes: 2 (n - 1) / n * P.
    const std::uint64_t replica = find("ddp").report.replica_bytes_per_step;
    EXPECT_EQ(find("ddp").wire_bytes, 2 * (replica - replica / 8));
}

TEST(Recommend, RefusesNoRanks) {
    const Spec spec = spec_of({.name = ""});
    EXPECT_THROW(candidates(spec, {0, 1}, 1), Failure);
    EXPECT_THROW(candidates(spec, {1, 0}, 1), Failure);
    EXPECT_THROW(candidates(spec, {2, 2}, -1), Failure);
}

}  // namespace
}  // namespace vescomm::fsdp
