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

TEST(Trace, WritesTheArgumentsOfSpans) {
    Trace trace;
    trace.start(10);
    const double seconds = 0.1 + 0.2;
    const vescomm_trace_argument_t arguments[] = {{"unit", "block \"0\"", 7},
                                                  {"bytes", nullptr, 9007199254740992.0},
                                                  {"wait_seconds", nullptr, seconds},
                                                  {"none", nullptr, 0.0 / 0.0}};
    trace.add("with", "compute", 1, 2, vescomm::internal::trace_arguments(arguments));
    trace.add("empty", "compute", 2, 3, vescomm::internal::trace_arguments({}));
    trace.add("without", "compute", 3, 4);
    const json all = document(trace);
    ASSERT_EQ(spans_of(all), 3u);
    for (const json &event : all["traceEvents"]) {
        if (event["name"] == "without") {
            EXPECT_FALSE(event.contains("args"));
        }
        if (event["name"] == "empty") {
            EXPECT_EQ(event["args"], json::object());
        }
        if (event["name"] != "with") continue;
        EXPECT_EQ(event["args"]["unit"], "block \"0\"");
        EXPECT_EQ(event["args"]["bytes"], 9007199254740992.0);
        EXPECT_EQ(event["args"]["wait_seconds"], seconds);
        EXPECT_TRUE(event["args"]["none"].is_null());
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
