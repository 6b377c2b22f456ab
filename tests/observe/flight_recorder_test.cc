// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "observe/flight_recorder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/types.h"
#include "comm/flight.h"

namespace vescomm::internal {
namespace {

using nlohmann::json;

TEST(FlightRecorder, RecordsStartedAndCompletedOperations) {
    FlightRecorder recorder;
    EXPECT_TRUE(recorder.entries().empty());
    EXPECT_EQ(recorder.start(7, true), 1u);
    EXPECT_EQ(recorder.start(8, true), 2u);
    recorder.complete(1);
    const auto entries = recorder.entries();
    ASSERT_EQ(entries.size(), 2u);
    EXPECT_EQ(entries[0].number, 1u);
    EXPECT_EQ(entries[0].what, 7u);
    EXPECT_TRUE(entries[0].completed);
    EXPECT_FALSE(entries[1].completed);
    EXPECT_GT(entries[0].started, 0);
}

TEST(FlightRecorder, KeepsOnlyTheNewestOperations) {
    FlightRecorder recorder;
    for (std::uint64_t i = 1; i <= 1000; ++i) EXPECT_EQ(recorder.start(i, false), i);
    recorder.complete(1);  // overwritten: the operation that has its slot now is not completed
    recorder.complete(1000);
    const auto entries = recorder.entries();
    ASSERT_EQ(entries.size(), FlightRecorder::kept);
    for (std::size_t i = 0; i < entries.size(); ++i) {
        EXPECT_EQ(entries[i].number, 1000 - FlightRecorder::kept + 1 + i);
        EXPECT_EQ(entries[i].what, entries[i].number);
        EXPECT_EQ(entries[i].completed, entries[i].number == 1000);
    }
}

TEST(FlightRecorder, RecordsTheTimeOfALongOperationOnce) {
    FlightRecorder recorder;
    recorder.start(1, false);
    EXPECT_EQ(recorder.entries()[0].started, 0);
    recorder.takes_long(1);
    const std::int64_t first = recorder.entries()[0].started;
    EXPECT_GT(first, 0);
    recorder.takes_long(1);
    EXPECT_EQ(recorder.entries()[0].started, first);
}

TEST(FlightRecorder, CanBeReadWhileItIsWritten) {
    FlightRecorder recorder;
    std::atomic<bool> stop{false};
    std::thread reader([&] {
        while (!stop)
            for (const auto &entry : recorder.entries()) EXPECT_EQ(entry.what, entry.number);
    });
    for (std::uint64_t i = 1; i <= 200'000; ++i) recorder.complete(recorder.start(i, false));
    stop = true;
    reader.join();
}

std::vector<json> lines(const std::string &text) {
    std::vector<json> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
    return lines;
}

TEST(FlightText, HasALineForTheRankAndOneForEachOperation) {
    FlightRecorder recorder;
    const auto *flat = find_algorithm(Collective::all_reduce, "flat");
    const auto *barrier = find_algorithm(Collective::barrier, "dissemination");
    recorder.complete(recorder.start(flight_word(*flat, VESCOMM_BF16, VESCOMM_MAX, 640), true));
    recorder.start(flight_word(*barrier, VESCOMM_TYPE_DEFAULT, VESCOMM_SUM, 0), false);
    const auto text = lines(flight_text({.rank = 2,
                                         .ranks = 5,
                                         .communicator = 1,
                                         .status = VESCOMM_ERROR_TIMEOUT,
                                         .why = "a \"reason\"\n\xff"},
                                        recorder));
    ASSERT_EQ(text.size(), 3u);
    EXPECT_EQ(text[0]["rank"], 2);
    EXPECT_EQ(text[0]["ranks"], 5);
    EXPECT_EQ(text[0]["status"], "timeout");
    EXPECT_EQ(text[0]["operations"], 2);
    EXPECT_EQ(text[1]["operation"], 1);
    EXPECT_EQ(text[1]["collective"], "all_reduce");
    EXPECT_EQ(text[1]["algorithm"], "flat");
    EXPECT_EQ(text[1]["type"], "bf16");
    EXPECT_EQ(text[1]["op"], "max");
    EXPECT_EQ(text[1]["bytes"], 640);
    EXPECT_EQ(text[1]["state"], "completed");
    EXPECT_GT(text[1]["started"], 1e9);
    EXPECT_EQ(text[2]["collective"], "barrier");
    EXPECT_EQ(text[2]["type"], "none");
    EXPECT_EQ(text[2]["op"], "none");
    EXPECT_EQ(text[2]["state"], "started");
    EXPECT_FALSE(text[2].contains("started"));
}

TEST(FlightText, NamesThePeerAndTheTagOfAMessage) {
    FlightRecorder recorder;
    const auto record = [&](Collective collective, int peer, int tag, bool any_source = false) {
        recorder.set_message(recorder.start(flight_word(collective, VESCOMM_F32, 40), false), peer,
                             tag, any_source);
    };
    record(Collective::send, 3, 7);
    record(Collective::receive, VESCOMM_ANY_SOURCE, 2'147'483'647, true);
    record(Collective::receive, 0, 0);
    record(Collective::receive, 5, 2'147'483'647, true);
    recorder.start(flight_word(algorithms()[0], VESCOMM_F32, VESCOMM_SUM, 40), false);
    const auto text = lines(flight_text({}, recorder));
    ASSERT_EQ(text.size(), 6u);
    EXPECT_EQ(text[1]["collective"], "send");
    EXPECT_EQ(text[1]["peer"], 3);
    EXPECT_EQ(text[1]["tag"], 7);
    EXPECT_EQ(text[2]["peer"], "any");
    EXPECT_EQ(text[2]["tag"], 2'147'483'647);
    EXPECT_FALSE(text[2].contains("asked"));
    EXPECT_EQ(text[3]["peer"], 0);
    EXPECT_EQ(text[3]["tag"], 0);
    EXPECT_FALSE(text[3].contains("asked"));
    EXPECT_EQ(text[4]["peer"], 5);
    EXPECT_EQ(text[4]["tag"], 2'147'483'647);
    EXPECT_EQ(text[4]["asked"], "any");
    EXPECT_FALSE(text[5].contains("peer"));
    // Another operation has its slot now.
    for (int i = 0; i < 1'000; ++i)
        recorder.start(flight_word(Collective::send, VESCOMM_F32, 40), false);
    recorder.set_message(1, 99, 99, false);
    for (const FlightRecorder::Entry &entry : recorder.entries()) EXPECT_NE(entry.peer, 99);
}

TEST(FlightText, RestoresEveryAlgorithmTypeAndSize) {
    for (const AlgorithmEntry &entry : algorithms()) {
        FlightRecorder recorder;
        constexpr std::uint64_t bytes = std::uint64_t{1} << 43;
        recorder.start(flight_word(entry, last_type, last_op, bytes), false);
        const json line = lines(flight_text({}, recorder)).at(1);
        EXPECT_EQ(line["collective"], name_of(entry.collective));
        EXPECT_EQ(line["algorithm"], entry.name);
        EXPECT_EQ(line["type"], name_of_type(last_type));
        EXPECT_EQ(line["op"], reduces(entry.collective) ? name_of_op(last_op) : "none");
        EXPECT_EQ(line["bytes"], bytes);
        EXPECT_EQ(line["state"], "started");
    }
}

}  // namespace
}  // namespace vescomm::internal
