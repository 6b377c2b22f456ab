// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/flight_report.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "comm/flight.h"

namespace vescomm::internal {
namespace {

struct Rank {
    int rank = 0;
    int started = 0;
    int completed = 0;  // the first `completed` operations are complete
    int different = 0;  // number of the operation with another operator; 0: none
    std::string why = "rank 1 died";
    int ranks = 3;
};

std::string written(const Rank &rank) {
    FlightRecorder recorder;
    const auto *flat = find_algorithm(Collective::all_reduce, "flat");
    for (int number = 1; number <= rank.started; ++number) {
        const vescomm_op_t op = number == rank.different ? VESCOMM_MAX : VESCOMM_SUM;
        recorder.start(flight_word(*flat, VESCOMM_F32, op, 400), true);
        if (number <= rank.completed) recorder.complete(static_cast<std::uint64_t>(number));
    }
    return flight_text({.rank = rank.rank,
                        .ranks = rank.ranks,
                        .status = VESCOMM_ERROR_PEER_FAILED,
                        .why = rank.why},
                       recorder);
}

std::string compared(const std::vector<Rank> &ranks) {
    std::vector<Flight> flights;
    for (const Rank &rank : ranks)
        flights.push_back(parse_flight("file " + std::to_string(rank.rank), written(rank)));
    return compare_flights(flights);
}

#define EXPECT_SAYS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

TEST(FlightReport, ReportsHowEachRankEnded) {
    const std::string text = compared({{2, 5, 4}, {0, 5, 5}, {1, 5, 4}});
    EXPECT_SAYS(text, "rank 0: 5 operations started, 0 of them not complete; peer failed: rank 1 ");
    EXPECT_SAYS(text, "rank 2: 5 operations started, 1 of them not complete; ");
    EXPECT_LT(text.find("rank 0"), text.find("rank 2:"));
}

TEST(FlightReport, NamesTheRankThatIsBehindAndTheOperation) {
    EXPECT_SAYS(compared({{0, 7, 6}, {1, 6, 6}, {2, 7, 6}}),
                "Behind: rank 1. Not started there: operation 7, all_reduce of 400 bytes of f32 "
                "(sum) by flat.\n");
    EXPECT_SAYS(compared({{0, 6, 6}, {1, 6, 6}, {2, 7, 6}}), "Behind: ranks 0, 1. ");
    EXPECT_SAYS(compared({{0, 500, 499}, {1, 6, 6}, {2, 500, 499}}),
                "operation 7, which is too long ago for the others to know.\n");
}

TEST(FlightReport, NamesRanksWithDifferentOperations) {
    EXPECT_SAYS(compared({{0, 7, 6}, {1, 7, 6}, {2, 9, 8, 7}}),
                "Ranks called different things: operation 7 is all_reduce of 400 bytes of f32 "
                "(sum) by flat on rank 0, and all_reduce of 400 bytes of f32 (max) by flat on "
                "rank 2.\n");
}

TEST(FlightReport, NamesTheIncompleteOperationIfNoRankIsBehind) {
    EXPECT_SAYS(compared({{0, 7, 6}, {2, 7, 7}}),
                "Started on every rank that wrote, and not complete on rank 0: operation 7");
    EXPECT_SAYS(compared({{0, 7, 7}, {2, 7, 7}}), "All that was started is complete");
    EXPECT_SAYS(compared({{0, 0, 0}}), "All that was started is complete");
}

// A send of one rank is a receive of another, so operations with one number differ.
TEST(FlightReport, NamesThePeersAndTagsOfMessages) {
    struct Message {
        Collective collective;
        int peer, tag;
        bool any, completed;
    };
    const auto flight_of = [](int rank, const std::vector<Message> &messages) {
        FlightRecorder recorder;
        for (const Message &message : messages) {
            const auto number =
                recorder.start(flight_word(message.collective, VESCOMM_F32, 40), true);
            recorder.set_message(number, message.peer, message.tag, message.any);
            if (message.completed) recorder.complete(number);
        }
        return parse_flight("file", flight_text({.rank = rank, .ranks = 3, .why = {}}, recorder));
    };
    const Collective send = Collective::send, receive = Collective::receive;
    const std::string text = compare_flights(
        {flight_of(0, {{send, 1, 7, false, true}, {send, 2, 0, false, false}}),
         flight_of(1, {{receive, 0, 7, true, true}, {receive, VESCOMM_ANY_SOURCE, 9, true, false}}),
         flight_of(2, {{receive, 1, 2'147'483'647, false, false}})});
    EXPECT_EQ(text.find("different things"), std::string::npos) << text;
    EXPECT_SAYS(text,
                "Not complete on rank 0: operation 2, send of 40 bytes of f32 by "
                "eager_buffers to rank 2 with tag 0.\n");
    EXPECT_SAYS(text,
                "Last complete message of rank 0: operation 1, send of 40 bytes of f32 by "
                "eager_buffers to rank 1 with tag 7.\n");
    EXPECT_SAYS(text,
                "Last complete message of rank 1: operation 1, receive of 40 bytes of f32 by "
                "eager_buffers from any rank, found at rank 0, with tag 7.\n");
    EXPECT_SAYS(text,
                "Not complete on rank 1: operation 2, receive of 40 bytes of f32 by "
                "eager_buffers from any rank with tag 9.\n");
    EXPECT_SAYS(text,
                "Not complete on rank 2: operation 1, receive of 40 bytes of f32 by "
                "eager_buffers from rank 1 with tag 2147483647.\n");
}

TEST(FlightReport, RefusesMessagesWithoutAKnownPeerOrTag) {
    const std::string header =
        R"({"flight_recorder":1,"rank":0,"ranks":3,"status":"ok","why":"","operations":1})"
        "\n";
    const auto parse = [&](const std::string &collective, const std::string &rest) {
        return parse_flight("file", header + R"({"operation":1,"collective":")" + collective +
                                        R"(","type":"f32","op":"none","bytes":4,)"
                                        R"("algorithm":"eager_buffers","state":"started")" +
                                        rest + "}\n");
    };
    EXPECT_EQ(parse("receive", R"(,"peer":"any","tag":1)").operations.at(1).message,
              " from any rank with tag 1");
    for (const char *rest :
         {"", R"(,"peer":1)", R"(,"tag":1)", R"(,"peer":3,"tag":1)", R"(,"peer":-1,"tag":1)",
          R"(,"peer":1,"tag":2147483648)", R"(,"peer":"some","tag":1)", R"(,"peer":[],"tag":1)",
          R"(,"peer":"any","tag":1,"asked":"any")", R"(,"peer":1,"tag":1,"asked":"all")"})
        EXPECT_THROW(parse("receive", rest), Error) << rest;
    EXPECT_THROW(parse("send", R"(,"peer":"any","tag":1)"), Error);
}

TEST(FlightReport, NamesRanksWithoutAFile) {
    EXPECT_SAYS(compared({{0, 7, 6}, {2, 7, 6}}), "No file of rank 1: dead, stopped");
    EXPECT_SAYS(compared({{0, 7, 6, 0, "x", 1'000'000}}),
                "No file of ranks 1, 2, 3, 4, 5, 6, 7, 8 and 999991 more: ");
    EXPECT_EQ(compared({{0, 7, 6}, {1, 7, 6}, {2, 7, 6}}).find("No file"), std::string::npos);
}

TEST(FlightReport, RefusesFilesOfDifferentCommunicators) {
    EXPECT_THROW(compared({{0, 7, 6}, {0, 7, 6}}), Error);
    EXPECT_THROW(compared({{0, 7, 6}, {1, 7, 6, 0, "", 4}}), Error);
}

std::string refusal(const std::string &text) {
    try {
        parse_flight("the file", text);
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_INVALID_ARGUMENT);
        return error.what();
    }
    return "";
}

TEST(FlightReport, RefusesMalformedFiles) {
    const std::string good = written({0, 2, 1});
    const std::string header = good.substr(0, good.find('\n') + 1);
    const std::string operation = good.substr(header.size());
    EXPECT_EQ(refusal(good), "");
    EXPECT_SAYS(refusal(""), "the file is empty");
    EXPECT_SAYS(refusal("\n"), "line 1 is no object of JSON");
    EXPECT_SAYS(refusal("[]"), "line 1 is no object of JSON");
    EXPECT_SAYS(refusal(operation), "line 1 has no \"flight_recorder\"");
    EXPECT_SAYS(refusal(header + header), "line 2 has no \"operation\"");
    EXPECT_SAYS(refusal(header + operation + operation), "was there before");
    EXPECT_SAYS(refusal(header + std::string(100'000, '[')), "line 2 is too long");
    EXPECT_SAYS(refusal(std::string(5 << 20, ' ')), "is larger than");
    const auto changed = [&](const std::string &from, const std::string &to) {
        std::string text = good;
        text.replace(text.find(from), from.size(), to);
        return refusal(text);
    };
    EXPECT_SAYS(changed("\"rank\":0", "\"rank\":3"), "has no number from 0 to 2 as \"rank\"");
    EXPECT_SAYS(changed("\"rank\":0", "\"rank\":-1"), "as \"rank\"");
    EXPECT_SAYS(changed("\"rank\":0", "\"rank\":\"0\""), "as \"rank\"");
    EXPECT_SAYS(changed("\"ranks\":3", "\"ranks\":99999999999"), "as \"ranks\"");
    EXPECT_SAYS(changed("\"ranks\":3", "\"ranks\":3.5"), "as \"ranks\"");
    EXPECT_SAYS(changed("\"operation\":2", "\"operation\":99"), "as \"operation\"");
    EXPECT_SAYS(changed("\"state\":\"started\"", "\"state\":\"lost\""), "no known state");
    EXPECT_SAYS(changed("\"flight_recorder\":1", "\"flight_recorder\":2"), "flight_recorder");
}

TEST(FlightReport, RemovesControlCharacters) {
    const std::string text = compared({{0, 1, 1, 0, "\x1b[2J\r\x7f"}});
    for (const char byte : text)
        EXPECT_TRUE(byte == '\n' || (byte >= ' ' && byte != 127)) << static_cast<int>(byte);
}

TEST(FlightReport, HandlesRandomBytes) {
    std::mt19937 random(1);
    const std::string good = written({0, 20, 10});
    for (int i = 0; i < 2'000; ++i) {
        std::string text = good.substr(0, random() % 4 == 0 ? random() % good.size() : good.size());
        for (int change = 0; change < 3 && !text.empty(); ++change)
            text[random() % text.size()] = static_cast<char>(random());
        try {
            compare_flights({parse_flight("the file", text)});
        } catch (const Error &) {
            // The only exception that is allowed.
        }
    }
}

}  // namespace
}  // namespace vescomm::internal
