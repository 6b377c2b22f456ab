// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The memory that an engine has on several nodes, against the report.
#include <cstdint>
#include <string>
#include <vector>

#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

using Nodes = std::vector<int>;

// Large enough that sums of gradients do not pass through the staging buffer only.
std::vector<UnitModel> large_model() {
    std::vector<UnitModel> units;
    units.push_back({"embedding", {{.name = "token", .shape = {701, 96}}}});
    for (int i = 0; i < 3; ++i)
        units.push_back({"block." + std::to_string(i),
                         {{.name = "up", .shape = {384, 96}, .block_rows = 32},
                          {.name = "bias", .shape = {384}},
                          {.name = "owned", .shape = {300, 96}, .block_rows = -1}}});
    return units;
}

vescomm_fsdp_spec_options_t options_of(vescomm_type_t type, bool partner_copy) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.compute_type = type;
    options.partner_copy = partner_copy ? 1 : 0;
    return options;
}

vescomm_fsdp_report_t report_of(const Described &described, const Nodes &nodes, int rank,
                                int micro_batches, const Communicator *comm = nullptr) {
    return described.spec.report_on(std::vector<std::int32_t>(nodes.begin(), nodes.end()), rank,
                                    micro_batches, comm);
}

// True if the shard group of a rank is on several nodes.
bool sums_between_nodes(const std::string &preset, const Nodes &nodes, std::size_t rank) {
    const std::size_t size = preset == "hsdp:2" ? 2 : preset == "ddp" ? 1 : nodes.size();
    const std::size_t first = rank / size * size;
    for (std::size_t other = first; other < first + size; ++other)
        if (nodes[other] != nodes[first]) return true;
    return false;
}

void expect_reported(const std::string &preset, vescomm_type_t type, bool partner_copy,
                     const Nodes &nodes) {
    const auto ranks = static_cast<int>(nodes.size());
    run_ranks(
        ranks,
        [&](Communicator &comm) {
            const Described described =
                describe(large_model(), preset, options_of(type, partner_copy));
            for (const int micro_batches : {1, 2}) {
                const std::string what = preset + " on " + ::testing::PrintToString(nodes) +
                                         ", type " + std::to_string(type) + ", rank " +
                                         std::to_string(comm.rank());
                const vescomm_fsdp_report_t report =
                    report_of(described, nodes, comm.rank(), micro_batches, &comm);
                const Outcome outcome =
                    train(comm, described, {.steps = 2, .micro_batches = micro_batches});
                EXPECT_EQ(outcome.counters.allocated_bytes, report.peak_bytes) << what;
                EXPECT_EQ(report.partial_sum_bytes > 0,
                          sums_between_nodes(preset, nodes, static_cast<std::size_t>(comm.rank())))
                    << what;
                EXPECT_LE(report.backward_bytes, report.peak_bytes);
                EXPECT_LE(report.peak_bytes,
                          report_of(described, nodes, -1, micro_batches, &comm).peak_bytes);
            }
        },
        nodes);
}

TEST(PartialSums, AreAllocatedAsReported) {
    for (const vescomm_type_t type : {VESCOMM_F32, VESCOMM_BF16}) {
        for (const Nodes &nodes : {Nodes{0, 1}, Nodes{0, 0, 1}, Nodes{0, 1, 1}, Nodes{0, 0, 1, 1},
                                   Nodes{0, 1, 0, 1}, Nodes{0, 1, 2}})
            expect_reported("zero3", type, false, nodes);
        for (const Nodes &nodes : {Nodes{0, 0, 1, 1}, Nodes{0, 1, 2, 3}, Nodes{0, 1, 1, 1}})
            for (const char *preset : {"hsdp:2", "hpz:2", "zero1", "ddp"})
                expect_reported(preset, type, false, nodes);
    }
}

TEST(PartialSums, AreReportedWithPartnerCopies) {
    for (const Nodes &nodes :
         {Nodes{0, 1}, Nodes{0, 0, 1}, Nodes{0, 0, 1, 1}, Nodes{0, 1, 1, 1}, Nodes{0, 1, 0, 1}})
        expect_reported("zero3", VESCOMM_BF16, true, nodes);
}

// On one node only very unequal shards have partial sums.
TEST(PartialSums, AreThoseOfOwnersOfLargeShardsOnOneNode) {
    expect_reported("zero3", VESCOMM_F32, false, {0, 0, 0});
    const std::vector<UnitModel> unequal = {
        {"unit", {{.name = "owned", .shape = {1200, 512}, .block_rows = -1}}}};
    run_ranks(4, [&](Communicator &comm) {
        const Described described = describe(unequal);
        const Outcome outcome = train(comm, described, {.steps = 1});
        EXPECT_EQ(outcome.counters.allocated_bytes,
                  report_of(described, {0, 0, 0, 0}, comm.rank(), 1, &comm).peak_bytes);
    });
}

TEST(PartialSums, AreThoseOfConsecutiveRanks) {
    const Described described = describe(large_model());
    const vescomm_fsdp_report_t pairs = described.spec.report(5, 3, 1, 2);
    const vescomm_fsdp_report_t same = report_of(described, {7, 7, 3, 3, 0}, 3, 1);
    EXPECT_EQ(pairs.node_ranks, 2);
    EXPECT_GT(pairs.partial_sum_bytes, 0u);
    EXPECT_EQ(pairs.partial_sum_bytes, same.partial_sum_bytes);
    EXPECT_EQ(pairs.peak_bytes, same.peak_bytes);
    const vescomm_fsdp_report_t together = described.spec.report(5, 3);
    EXPECT_EQ(pairs.peak_bytes - pairs.partial_sum_bytes,
              together.peak_bytes - together.partial_sum_bytes);
    EXPECT_EQ(pairs.backward_bytes, pairs.peak_bytes);
    EXPECT_EQ(pairs.forward_bytes, together.forward_bytes);
    EXPECT_EQ(pairs.step_bytes, together.step_bytes);
    vescomm_fsdp_report_t wrong = vescomm_fsdp_report_init();
    wrong.node_ranks = -1;
    EXPECT_EQ(vescomm_fsdp_report(described.spec.get(), 2, &wrong), VESCOMM_ERROR_INVALID_ARGUMENT);
    vescomm_fsdp_report_t recommended = vescomm_fsdp_report_init();
    const auto best = described.spec.recommend(4, 2, 1ull << 40, &recommended);
    EXPECT_EQ(recommended.node_ranks, 2);
    EXPECT_EQ(best.peak_bytes, [&] {
        vescomm_fsdp_report_t largest = recommended;
        largest.rank = -1;
        Described with = describe(large_model(), best.preset);
        check(vescomm_fsdp_report(with.spec.get(), 4, &largest));
        return largest.peak_bytes;
    }());
}

}  // namespace
}  // namespace vescomm::fsdp::testing
