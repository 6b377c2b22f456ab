// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Frames of a hub that breaks the protocol: the client fails the session and delivers nothing to
// the caller.
#include <gtest/gtest.h>

#include "bootstrap/session_client.h"

namespace vescomm::internal {
namespace {

constexpr GroupId id{1, 2};
constexpr std::uint32_t number = 7;

class SessionClientTest : public ::testing::Test {
protected:
    static std::string of_group(const std::string &rest = {}) {
        std::string payload;
        put_group(payload, id);
        return payload + rest;
    }

    template <typename Number>
    static std::string with(Number value) {
        std::string payload = of_group();
        put_number(payload, value);
        return payload;
    }

    void open() {
        client.open(group, "communicator creation");
        client.receive(FrameType::opened, with(number));
    }

    void contribute(std::uint64_t sequence) {
        client.contribute(group, ContributionHead{sequence, 1, "call"}, "a");
    }

    void receive_data() {
        const std::vector<std::string> all = {"a", "bc"};
        client.receive(FrameType::data, of_group(encode_sizes(all) + all[0] + all[1]));
    }

    void expect_violation() {
        ASSERT_TRUE(client.failure());
        EXPECT_EQ(client.failure()->status, VESCOMM_ERROR_INTERNAL);
        EXPECT_NE(std::string(client.failure()->what()).find("rank 0 broke the protocol"),
                  std::string::npos);
        EXPECT_TRUE(group->failure.broken());
        EXPECT_FALSE(group->take_answer());
    }

    std::vector<FrameType> sent;
    SessionClient client{1,
                         2,
                         {[this](FrameType type, const std::string &) { sent.push_back(type); },
                          [](const GroupId &, const Pieces &) {}},
                         [] {}};
    std::shared_ptr<GroupState> group = std::make_shared<GroupState>(id, 1, std::vector<int>{0, 1});
};

TEST_F(SessionClientTest, AcceptsResultsInOrder) {
    open();
    EXPECT_TRUE(group->opened());
    EXPECT_EQ(group->number(), number);
    for (std::uint64_t sequence = 1; sequence <= 3; ++sequence) {
        contribute(sequence);
        client.receive(FrameType::result, with(sequence));
        EXPECT_FALSE(group->take_answer());
        receive_data();
        EXPECT_EQ(group->take_answer(), (std::vector<std::string>{"a", "bc"}));
    }
    EXPECT_FALSE(client.failure());
}

TEST_F(SessionClientTest, RejectsTheResultOfAnotherCall) {
    open();
    contribute(1);
    client.receive(FrameType::result, with(std::uint64_t{2}));
    expect_violation();
}

TEST_F(SessionClientTest, RejectsARepeatedResult) {
    open();
    contribute(1);
    client.receive(FrameType::result, with(std::uint64_t{1}));
    receive_data();
    EXPECT_TRUE(group->take_answer());
    contribute(2);
    client.receive(FrameType::result, with(std::uint64_t{1}));
    expect_violation();
}

TEST_F(SessionClientTest, RejectsAResultWithoutAContribution) {
    open();
    client.receive(FrameType::result, with(std::uint64_t{1}));
    expect_violation();
}

TEST_F(SessionClientTest, RejectsDataWithoutAResult) {
    open();
    contribute(1);
    receive_data();
    expect_violation();
}

TEST_F(SessionClientTest, RejectsTheGoodbyeOfANonexistentRank) {
    open();
    client.receive(FrameType::goodbye, with(std::uint32_t{1}));
    EXPECT_FALSE(client.failure());
    EXPECT_TRUE(group->has_left(1));
    client.receive(FrameType::goodbye, with(std::uint32_t{2}));
    expect_violation();
}

// Rank 0 may end as soon as all ranks have left: a caller that has not looked yet has nothing to
// lose.
TEST_F(SessionClientTest, AGroupThatAllHaveLeftHasNoFailure) {
    open();
    client.leave(group);
    client.receive(FrameType::goodbye, with(std::uint32_t{0}));
    client.receive(FrameType::goodbye, with(std::uint32_t{1}));
    EXPECT_FALSE(group->all_left());
    client.receive(FrameType::farewell, of_group());
    client.lose_hub(Ended::died, "died, or ended without leaving: its connection closed");
    EXPECT_TRUE(client.failure());
    EXPECT_TRUE(group->all_left());
    EXPECT_FALSE(group->failure.broken());
}

TEST_F(SessionClientTest, AGroupThatNotAllHaveLeftFailsWithTheHub) {
    open();
    client.leave(group);
    client.receive(FrameType::goodbye, with(std::uint32_t{0}));
    client.lose_hub(Ended::died, "died");
    EXPECT_TRUE(group->failure.broken());
}

TEST_F(SessionClientTest, DeliversNotes) {
    open();
    EXPECT_FALSE(group->has_notes());
    client.receive(FrameType::note, with(std::uint32_t{1}) + "hello");
    client.receive(FrameType::note, with(std::uint32_t{0}));
    EXPECT_TRUE(group->has_notes());
    using Notes = std::vector<std::pair<int, std::string>>;
    EXPECT_EQ(group->take_notes(), (Notes{{1, "hello"}, {0, ""}}));
    EXPECT_FALSE(group->has_notes());
    EXPECT_EQ(group->take_notes(), Notes{});
    EXPECT_FALSE(client.failure());
}

TEST_F(SessionClientTest, KeepsALimitedNumberOfNotes) {
    open();
    for (int i = 0; i < 5000; ++i) client.receive(FrameType::note, with(std::uint32_t{1}) + "a");
    EXPECT_EQ(group->take_notes().size(), 1024);
    EXPECT_FALSE(client.failure());
}

TEST_F(SessionClientTest, RejectsTheNoteOfANonexistentRank) {
    open();
    client.receive(FrameType::note, with(std::uint32_t{2}) + "hello");
    expect_violation();
    EXPECT_FALSE(group->has_notes());
}

TEST_F(SessionClientTest, RejectsANoteThatIsTooLong) {
    open();
    client.receive(FrameType::note, with(std::uint32_t{1}) + std::string(max_note_bytes, 'a'));
    EXPECT_FALSE(client.failure());
    client.receive(FrameType::note, with(std::uint32_t{1}) + std::string(max_note_bytes + 1, 'a'));
    expect_violation();
}

TEST_F(SessionClientTest, RejectsANoteWithoutARank) {
    open();
    client.receive(FrameType::note, of_group("abc"));
    expect_violation();
}

TEST_F(SessionClientTest, RejectsFramesOfTheWrongSize) {
    client.open(group, "communicator creation");
    client.receive(FrameType::opened, of_group());
    expect_violation();
    EXPECT_FALSE(group->opened());
}

TEST_F(SessionClientTest, IgnoresFramesOfGroupsThatHaveEnded) {
    open();
    client.leave(group);
    client.forget(group);
    EXPECT_TRUE(client.idle());
    client.receive(FrameType::result, with(std::uint64_t{9}));
    EXPECT_FALSE(client.failure());
    EXPECT_EQ(sent, (std::vector<FrameType>{FrameType::open, FrameType::goodbye}));
}

}  // namespace
}  // namespace vescomm::internal
