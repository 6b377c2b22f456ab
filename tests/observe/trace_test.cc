// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "observe/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

using nlohmann::json;
using vescomm::internal::Trace;

namespace {

constexpr std::uint64_t plenty = 1 << 30;

json document(const Trace &trace, std::uint64_t max_bytes = plenty) {
    return json::parse(vescomm::internal::trace_document({trace.events(3, max_bytes), ""}));
}

std::size_t spans_of(const json &document) {
    std::size_t spans = 0;
    for (const json &event : document["traceEvents"]) spans += event["ph"] == "X" ? 1 : 0;
    return spans;
}

std::string dropped(const json &document) {
    for (const json &event : document["traceEvents"])
        if (event["name"] == "process_labels") return event["args"]["labels"];
    return "";
}

TEST(Trace, RecordsNothingUntilItIsStarted) {
    Trace trace;
    trace.add("early", "compute", 0, 1);
    EXPECT_EQ(spans_of(document(trace)), 0u);
}

TEST(Trace, WritesSpansInMicroseconds) {
    Trace trace;
    trace.start(10);
    trace.add("forward", "compute", 1, 1.5);
    trace.add("gather \"a\"\n\xff", "wait", 1.25, 2);
    const json all = document(trace);
    ASSERT_EQ(spans_of(all), 2u);
    for (const json &event : all["traceEvents"]) {
        EXPECT_EQ(event["pid"], 3);
        if (event["name"] != "forward") continue;
        EXPECT_EQ(event["ts"], 1e6);
        EXPECT_EQ(event["dur"], 5e5);
    }
}

TEST(Trace, CountsDroppedSpans) {
    Trace trace;
    trace.start(5);
    for (int i = 0; i < 8; ++i) trace.add("span", "compute", i, i + 1);
    EXPECT_EQ(spans_of(document(trace)), 5u);
    EXPECT_EQ(dropped(document(trace)), "3 spans dropped");

    constexpr std::uint64_t little = 300;
    const json some = document(trace, little);
    EXPECT_GT(spans_of(some), 0u);
    EXPECT_LT(spans_of(some), 5u);
    EXPECT_EQ(dropped(some), std::to_string(8 - spans_of(some)) + " spans dropped");
}

}  // namespace
