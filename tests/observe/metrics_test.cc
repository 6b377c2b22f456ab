// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <regex>
#include <sstream>

#include "support/array_ranks.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::internal {
namespace {

using testing_support::check;

std::string metrics_of(vescomm_comm_t *comm) {
    std::size_t size = 0;
    check(vescomm_comm_get_metrics(comm, nullptr, 0, &size));
    std::string text(size + 64, 'x');  // 64 more: numbers may grow in between
    check(vescomm_comm_get_metrics(comm, text.data(), text.size(), &size));
    return text.c_str();
}

// Checks that every line has the right format, and returns the samples by name.
std::map<std::string, double> samples(const std::string &text) {
    static const std::regex help("# HELP ([a-z_]+) [^\n]+\\.");
    static const std::regex type("# TYPE ([a-z_]+) (counter|gauge)");
    static const std::regex sample("([a-z_]+)\\{([a-z_]+=\"[^\"\\\\\n]*\",?)+\\} ([0-9.e+-]+)");
    std::map<std::string, double> samples;
    std::istringstream stream(text);
    std::smatch match;
    for (std::string line; std::getline(stream, line);) {
        EXPECT_TRUE(std::regex_match(line, match, help)) << line;
        const std::string name = match[1];
        std::getline(stream, line);
        EXPECT_TRUE(std::regex_match(line, match, type)) << line;
        EXPECT_EQ(match[1], name);
        EXPECT_EQ(match[2] == "counter", name.ends_with("_total"));
        std::getline(stream, line);
        EXPECT_TRUE(std::regex_match(line, match, sample)) << line;
        EXPECT_EQ(match[1], name);
        EXPECT_TRUE(samples.emplace(name, std::stod(match[3])).second) << name;
    }
    EXPECT_TRUE(text.ends_with('\n'));
    return samples;
}

TEST(Metrics, AreTheCountersAsText) {
    testing_support::run_array_ranks({testing_support::Kind::node, {0, 0}}, [](auto *comm) {
        std::vector<float> data(100'000, 1);
        check(vescomm_all_reduce(comm, data.data(), data.data(), 100'000, VESCOMM_F32, VESCOMM_SUM,
                                 nullptr, nullptr, nullptr));
        auto counters = vescomm_comm_counters_init();
        check(vescomm_comm_get_counters(comm, &counters));
        const std::string text = metrics_of(comm);
        EXPECT_LT(text.size(), 4096u);
        EXPECT_NE(text.find("rank=\"" + std::to_string(comm->value->rank()) + "\""),
                  std::string::npos);
        auto found = samples(text);
        EXPECT_EQ(found["vescomm_info"], 1);
        EXPECT_EQ(found["vescomm_broken"], 0);
        EXPECT_EQ(found["vescomm_operations_total"], static_cast<double>(counters.operations));
        EXPECT_EQ(found["vescomm_reduced_bytes_total"],
                  static_cast<double>(counters.bytes_reduced));
        EXPECT_EQ(found["vescomm_busy_seconds_total"], counters.busy_seconds);
        EXPECT_GT(found["vescomm_written_bytes_total"], 0);
        EXPECT_EQ(found["vescomm_registered_bytes_total"],
                  static_cast<double>(counters.bytes_registered));
        EXPECT_EQ(found.size(), 10u);
    });
}

TEST(Metrics, TooSmallABufferIsNotWritten) {
    testing_support::run_array_ranks({testing_support::Kind::node, {0}}, [](auto *comm) {
        std::size_t size = 0;
        check(vescomm_comm_get_metrics(comm, nullptr, 0, &size));
        std::string text(size - 1, 'x');
        check(vescomm_comm_get_metrics(comm, text.data(), text.size(), &size));
        EXPECT_EQ(text, std::string(size - 1, 'x'));
        EXPECT_EQ(vescomm_comm_get_metrics(comm, nullptr, 1, &size),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(vescomm_comm_get_metrics(comm, nullptr, 0, nullptr),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(vescomm_comm_get_metrics(nullptr, nullptr, 0, &size),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
    });
}

TEST(Metrics, ReportABrokenCommunicator) {
    testing_support::run_array_ranks({testing_support::Kind::node, {0}}, [](auto *comm) {
        check(vescomm_comm_abort(comm, "enough"));
        EXPECT_EQ(samples(metrics_of(comm))["vescomm_broken"], 1);
    });
}

TEST(Metrics, CppReturnsAString) {
    const auto comm = vescomm::Communicator::from_environment();
    const std::string text = comm.metrics();
    EXPECT_EQ(text, metrics_of(comm.get()));
    EXPECT_EQ(text.find('\0'), std::string::npos);
}

}  // namespace
}  // namespace vescomm::internal
