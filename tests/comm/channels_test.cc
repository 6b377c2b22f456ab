// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/channels.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>

#include "base/error.h"

namespace vescomm::internal {
namespace {

// The channels of some ranks. take() runs the all-gathers of a creation.
class Team {
public:
    Team(int ranks, std::uint32_t count) {
        for (int rank = 0; rank < ranks; ++rank) {
            ranks_.push_back(std::make_unique<Channels>());
            ranks_.back()->set_count(count);
        }
    }
    Channels &operator[](int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

    Channel take() {
        for (;; ++failed_) {
            std::vector<std::string> offers;
            for (const auto &rank : ranks_) offers.push_back(rank->offer());
            const auto first = ranks_[0]->take(offers);
            for (std::size_t rank = 1; rank < ranks_.size(); ++rank)
                EXPECT_EQ(ranks_[rank]->take(offers), first);
            if (first) return *first;
        }
    }
    void give_back(Channel channel) {
        for (const auto &rank : ranks_) rank->give_back(channel);
    }

    // All-gathers after which take() found no channel.
    int failed_gathers() const { return failed_; }

private:
    std::vector<std::unique_ptr<Channels>> ranks_;
    int failed_ = 0;
};

TEST(Channels, UnusedChannelsAreTakenInOrder) {
    Team team(2, 10);
    EXPECT_EQ(team[0].fresh(4), 0u);
    EXPECT_EQ(team[1].fresh(4), 0u);
    EXPECT_EQ(team.take(), (Channel{4, 0}));
    EXPECT_EQ(team.take(), (Channel{5, 0}));
}

// Ranks that fail for one reason compare their sentences.
TEST(Channels, ExhaustionIsTheSameErrorOnRanksThatHaveFreedOthers) {
    Team team(2, 4);
    for (int taken = 0; taken < 4; ++taken) team.take();
    team[0].give_back({1, 7});
    std::vector<std::string> offers, errors;
    for (const int rank : {0, 1}) offers.push_back(team[rank].offer());
    for (const int rank : {0, 1}) {
        try {
            team[rank].take(offers);
        } catch (const Error &error) {
            EXPECT_EQ(error.status, VESCOMM_ERROR_OUT_OF_MEMORY);
            errors.emplace_back(error.what());
        }
    }
    ASSERT_EQ(errors.size(), 2U);
    EXPECT_EQ(errors[0], errors[1]);
}

TEST(Channels, ChannelIsReusedOnceEveryRankHasGivenItBack) {
    Team team(3, 10);
    const Channel first = team.take();
    team[0].give_back({first.number, 7});
    team[2].give_back({first.number, 7});
    EXPECT_EQ(team.take(), (Channel{1, 0}));
    team[1].give_back({first.number, 7});
    EXPECT_EQ(team.take(), (Channel{0, 7}));
    EXPECT_EQ(team.take(), (Channel{2, 0}));
}

TEST(Channels, ReusedChannelContinuesFromTheHighestRunOfAnyRank) {
    Team team(3, 10);
    const Channel first = team.take();
    team[0].give_back({first.number, 5});
    team[1].give_back({first.number, 9});
    team[2].give_back({first.number, 6});
    EXPECT_EQ(team.take(), (Channel{0, 9}));
}

TEST(Channels, NextChannelThatAllRanksOfferIsTaken) {
    Team team(2, 10);
    for (int i = 0; i < 6; ++i) team.take();
    for (const std::uint32_t number : {5u, 1u, 3u}) team[0].give_back({number, 1});
    for (const std::uint32_t number : {5u, 3u, 0u}) team[1].give_back({number, 1});
    EXPECT_EQ(team.take().number, 3u);
    team[0].give_back({0, 1});
    EXPECT_EQ(team.take().number, 5u);
    EXPECT_EQ(team.take().number, 0u);
    EXPECT_EQ(team.take().number, 6u);
    EXPECT_EQ(team.failed_gathers(), 0);
}

// One rank has freed all channels, the other only the last one, behind more than one offer can
// hold.
TEST(Channels, CommonChannelIsFoundBehindManyThatOnlyOneRankHasFreed) {
    constexpr std::uint32_t count = 10 * Channels::max_offered;
    Team team(2, count);
    for (std::uint32_t i = 0; i < count; ++i) team.take();
    for (std::uint32_t i = 0; i < count; ++i) team[0].give_back({i, 1});
    team[1].give_back({count - 1, 2});
    EXPECT_EQ(team.take(), (Channel{count - 1, 2}));
    EXPECT_GT(team.failed_gathers(), 5);
    EXPECT_THROW(team.take(), Error);
}

TEST(Channels, ChannelWithFewRunsLeftIsNotReused) {
    Team team(2, 10);
    const Channel first = team.take(), second = team.take();
    team.give_back({first.number, Channels::max_runs_of_free + 1});
    EXPECT_EQ(team.take().number, 2u);
    // One rank has seen one run more than the other.
    team[0].give_back({second.number, Channels::max_runs_of_free});
    team[1].give_back({second.number, Channels::max_runs_of_free + 1});
    EXPECT_EQ(team.take().number, 3u);
    const Channel last{2, Channels::max_runs_of_free};
    team.give_back(last);
    EXPECT_EQ(team.take(), last);
    // The next user gets at least 2^31 runs.
    EXPECT_GE((std::uint64_t{1} << 32) - 1 - last.runs, std::uint64_t{1} << 31);
}

TEST(Channels, ErrorNamesTheNumberInUseIfNoneIsLeft) {
    Team team(1, 3);
    team.take();
    const Channel second = team.take();
    team.take();
    team.give_back(second);
    EXPECT_EQ(team.take().number, second.number);
    try {
        team.take();
        FAIL() << "there are three";
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_OUT_OF_MEMORY);
        EXPECT_NE(std::string(error.what()).find("all of its 3 channels in use"), std::string::npos)
            << error.what();
    }
    EXPECT_THROW(team[0].fresh(2), Error);
}

TEST(Channels, InvalidOffersAreIgnored) {
    Channels channels;
    channels.set_count(3);
    EXPECT_EQ(channels.take({"", "abc"})->number, 0u);
    EXPECT_EQ(channels.take({std::string(7, '\0'), std::string(7, '\0')})->number, 1u);
    // A channel that no rank has used.
    const std::string unused("\5\0\0\0\1\0\0\0", 8);
    EXPECT_EQ(channels.take({unused, unused})->number, 2u);
}

// Every rank frees in its own order, and has its own number of channels in use. Few channels
// suffice for many uses, no channel has two users at a time, and run numbers only rise.
TEST(Channels, FewChannelsSufficeIfRanksFreeAtDifferentTimes) {
    constexpr std::uint64_t seed = 7;
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    constexpr int ranks = 3;
    Team team(ranks, 1 << 12);
    struct Use {
        Channel channel;
        int freed_by = 0;
    };
    std::vector<std::shared_ptr<Use>> owner(1 << 12);
    std::vector<std::uint32_t> highest(1 << 12, 0);
    std::vector<std::deque<std::shared_ptr<Use>>> held(ranks);
    std::uint32_t largest = 0;
    for (int i = 0; i < 100'000; ++i) {
        const Channel channel = team.take();
        ASSERT_TRUE(!owner[channel.number] || owner[channel.number]->freed_by == ranks);
        ASSERT_GE(channel.runs, highest[channel.number]);
        largest = std::max(largest, channel.number);
        auto use = std::make_shared<Use>();
        use->channel = channel;
        owner[channel.number] = use;
        for (int rank = 0; rank < ranks; ++rank) {
            auto &mine = held[static_cast<std::size_t>(rank)];
            mine.push_back(use);
            // Rank 0 frees immediately, rank 1 late and in order, rank 2 in random order.
            const std::size_t keeps = rank == 0 ? 0 : rank == 1 ? 100 : random() % 50;
            while (mine.size() > keeps) {
                if (rank == 2) std::swap(mine.front(), mine[random() % mine.size()]);
                const auto freed = mine.front();
                mine.pop_front();
                ++freed->freed_by;
                const std::uint32_t runs = freed->channel.runs + 1 + (rank == 1 ? 1 : 0);
                highest[freed->channel.number] = std::max(highest[freed->channel.number], runs);
                team[rank].give_back({freed->channel.number, runs});
            }
        }
    }
    EXPECT_LT(largest, 2000u);
    EXPECT_EQ(team.failed_gathers(), 0);
}

}  // namespace
}  // namespace vescomm::internal
