// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Counters of an engine as text for a collector.
#include "fsdp/report/metrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <regex>
#include <set>
#include <sstream>

namespace vescomm::fsdp {
namespace {

TEST(EngineMetrics, AreFamiliesOfHelpTypeAndSamples) {
    const std::string names[] = {"block.0", "a \"name\"\nwith a \\"};
    vescomm_fsdp_unit_counters_t units[] = {vescomm_fsdp_unit_counters_init(),
                                            vescomm_fsdp_unit_counters_init()};
    units[0].gathers = 7;
    units[1].backward_seconds = 0.25;
    units[0].gather_wait_seconds = 0.5;
    units[0].reduce_wait_seconds = 0.125;
    EngineCounts counts{.rank = 3,
                        .engine = 2,
                        .broken = true,
                        .counters = vescomm_fsdp_counters_init(),
                        .last = vescomm_fsdp_step_summary_init(),
                        .unit_names = names,
                        .units = units};
    counts.counters.steps = 12;
    counts.counters.gather_bytes = std::numeric_limits<std::uint64_t>::max();
    counts.last.norm = std::numeric_limits<double>::infinity();
    const std::string text = metrics_text(counts);
    const auto has = [&](const std::string &line) {
        return text.find(line + "\n") != std::string::npos;
    };
    EXPECT_TRUE(has("vescomm_fsdp_broken{rank=\"3\",engine=\"2\"} 1"));
    EXPECT_TRUE(has("vescomm_fsdp_steps_total{rank=\"3\",engine=\"2\"} 12"));
    EXPECT_TRUE(
        has("vescomm_fsdp_gathered_bytes_total{rank=\"3\",engine=\"2\"} 18446744073709551615"));
    EXPECT_TRUE(has("vescomm_fsdp_gradient_norm{rank=\"3\",engine=\"2\"} +Inf"));
    EXPECT_TRUE(has("vescomm_fsdp_unit_gathers_total{rank=\"3\",engine=\"2\",unit=\"block.0\"} 7"));
    EXPECT_TRUE(has(
        "vescomm_fsdp_unit_seconds_total{rank=\"3\",engine=\"2\",unit=\"a \\\"name\\\"\\nwith a "
        "\\\\\",phase=\"backward\"} 0.25"));
    EXPECT_TRUE(has(
        "vescomm_fsdp_unit_wait_seconds_total{rank=\"3\",engine=\"2\",unit=\"block.0\",transfer="
        "\"gather\"} 0.5"));
    EXPECT_TRUE(has(
        "vescomm_fsdp_unit_wait_seconds_total{rank=\"3\",engine=\"2\",unit=\"block.0\",transfer="
        "\"reduce\"} 0.125"));

    const std::regex help("# HELP ([a-z_]+) [^\n]+\\.");
    const std::regex type("# TYPE ([a-z_]+) (counter|gauge)");
    const std::regex sample(R"re(([a-z_]+)\{[a-z]+="\d+",[^\n]*\} ([0-9.e+-]+|NaN|\+Inf))re");
    std::istringstream lines(text);
    std::set<std::string> families;
    std::string name;
    std::smatch match;
    for (std::string line; std::getline(lines, line);) {
        if (std::regex_match(line, match, help)) {
            name = match[1];
            EXPECT_TRUE(families.insert(name).second) << line;
            ASSERT_TRUE(std::getline(lines, line));
            ASSERT_TRUE(std::regex_match(line, match, type)) << line;
            EXPECT_EQ(match[1], name);
            EXPECT_EQ(match[2] == "counter", name.ends_with("_total"));
        } else {
            ASSERT_TRUE(std::regex_match(line, match, sample)) << line;
            EXPECT_EQ(match[1], name);
        }
    }
    EXPECT_EQ(families.size(), 16);
}

}  // namespace
}  // namespace vescomm::fsdp
