// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The search for the ranks that keep a run from completing, as a pure function.
#include "comm/missing_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

namespace vescomm::internal {
namespace {

using Ranks = std::vector<int>;
// For each rank, the ranks that it waits for, or nothing if it has not started the run.
using Waits = std::vector<std::optional<Ranks>>;

// The missing ranks that `rank` finds if all ranks except the `silent` ones answer.
Ranks missing(const Waits &waits, int rank, const Ranks &silent = {}) {
    MissingRanks search(rank, *waits[static_cast<std::size_t>(rank)]);
    for (Ranks asked = search.take_questions(); !asked.empty(); asked = search.take_questions()) {
        EXPECT_FALSE(search.complete());
        for (const int each : asked) {
            if (std::ranges::find(silent, each) != silent.end()) continue;
            const auto &answer = waits[static_cast<std::size_t>(each)];
            if (answer) search.add_waiting(each, *answer);
            else search.add_absent(each);
        }
    }
    EXPECT_EQ(search.complete(), silent.empty());
    return search.missing();
}

TEST(MissingRanks, AreTheDirectPeersThatAreAbsent) {
    EXPECT_EQ(missing({Ranks{1, 2}, std::nullopt, std::nullopt}, 0), (Ranks{1, 2}));
    EXPECT_EQ(missing({Ranks{1, 2}, Ranks{2}, std::nullopt}, 0), Ranks{2});
}

TEST(MissingRanks, AreAtTheEndOfTheChain) {
    const Waits waits = {Ranks{3}, Ranks{0}, std::nullopt, Ranks{1, 2}, Ranks{2, 3}};
    for (const int rank : {0, 1, 3, 4}) EXPECT_EQ(missing(waits, rank), Ranks{2}) << rank;
}

TEST(MissingRanks, IncludeARankThatDoesNotAnswer) {
    const Waits waits = {Ranks{1}, Ranks{2}, Ranks{0}, std::nullopt};
    EXPECT_EQ(missing(waits, 0, {2}), Ranks{2});
    EXPECT_EQ(missing(waits, 0, {1}), Ranks{1});
}

TEST(MissingRanks, IncludeARankThatWaitsForNoOther) {
    EXPECT_EQ(missing({Ranks{1}, Ranks{2}, Ranks{}}, 0), Ranks{2});
}

TEST(MissingRanks, AreUnknownIfAllWaitForOneAnother) {
    EXPECT_EQ(missing({Ranks{1}, Ranks{2}, Ranks{0}}, 0), Ranks{});
}

TEST(MissingRanks, OfASearchThatAsksForAllItMay) {
    Ranks all;
    for (int rank = 1; rank <= 200; ++rank) all.push_back(rank);
    MissingRanks search(0, all);
    const Ranks asked = search.take_questions();
    EXPECT_EQ(asked.size(), MissingRanks::max_questions);
    EXPECT_TRUE(search.take_questions().empty());
    for (const int rank : asked) search.add_waiting(rank, {0});
    EXPECT_TRUE(search.complete());
    // None of the others is known to be innocent.
    EXPECT_EQ(search.missing().size(), all.size() - asked.size());
}

TEST(MissingRanks, IgnoreAnswersOfRanksThatWereNotAsked) {
    MissingRanks search(0, {1});
    EXPECT_EQ(search.take_questions(), Ranks{1});
    search.add_absent(2);
    search.add_waiting(3, {4});
    search.add_absent(0);
    EXPECT_FALSE(search.complete());
    search.add_absent(1);
    search.add_waiting(1, {2});
    EXPECT_TRUE(search.complete());
    EXPECT_EQ(search.missing(), Ranks{1});
}

}  // namespace
}  // namespace vescomm::internal
