// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/value_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace vescomm::fsdp {
namespace {

Update update(std::uint64_t number, bool skipped = false) {
    return {.number = number, .skipped = skipped ? 1U : 0U};
}

// One rank of a job in which ranks stop between events.
struct Rank {
    ValueState values;

    void set_all() {
        values.begin_change();
        values.set_complete();
    }
    void apply(const Update &update) {
        values.begin_update(update);
        if (update.skipped == 0) values.end_change(values.begin_change());
    }
};

ValueAgreement catch_up(std::vector<Rank> &ranks) {
    std::vector<ValueReport> reports;
    for (const Rank &rank : ranks) reports.push_back(rank.values.report());
    const ValueAgreement agreed = agree_on_values(reports);
    for (Rank &rank : ranks) {
        rank.values.begin_catching_up(agreed);
        for (const ValueReport &other : reports)
            if (other.last_update.number > rank.values.last_update().number)
                rank.apply(other.last_update);
        rank.values.end_catching_up(agreed);
    }
    return agreed;
}

TEST(ValueState, RanksOfOneStepAgree) {
    std::vector<Rank> ranks(3);
    for (Rank &rank : ranks) {
        rank.set_all();
        rank.apply(update(1));
    }
    EXPECT_EQ(catch_up(ranks).generation, 2U);
    for (const Rank &rank : ranks) {
        EXPECT_TRUE(rank.values.complete());
        EXPECT_FALSE(rank.values.incomplete_rank());
    }
}

TEST(ValueState, ARankAppliesTheUpdateThatItLacks) {
    for (const bool skipped : {false, true}) {
        std::vector<Rank> ranks(3);
        for (Rank &rank : ranks) rank.set_all();
        ranks[0].apply(update(1, skipped));
        ranks[2].apply(update(1, skipped));
        EXPECT_FALSE(catch_up(ranks).incomplete_rank);
        for (const Rank &rank : ranks) {
            EXPECT_EQ(rank.values.last_update().number, 1U);
            EXPECT_EQ(rank.values.generation(), skipped ? 1U : 2U);
            EXPECT_TRUE(rank.values.complete());
        }
    }
}

TEST(ValueState, ARankWithOlderValuesIsIncomplete) {
    std::vector<Rank> ranks(3);
    for (Rank &rank : ranks) rank.set_all();
    for (const int rank : {0, 2}) ranks[rank].set_all();  // a load that rank 1 did not reach
    catch_up(ranks);
    for (const Rank &rank : ranks) {
        EXPECT_EQ(rank.values.incomplete_rank(), 1);
        EXPECT_EQ(rank.values.generation(), 2U);
    }
    EXPECT_TRUE(ranks[0].values.complete());
    EXPECT_FALSE(ranks[1].values.complete());
    // All ranks load.
    for (Rank &rank : ranks) rank.set_all();
    EXPECT_FALSE(catch_up(ranks).incomplete_rank);
}

TEST(ValueState, AnUpdateCompletesNothing) {
    std::vector<Rank> ranks(2);
    for (Rank &rank : ranks) rank.set_all();
    ranks[1].values.begin_change();  // an initialisation failed
    ranks[0].set_all();
    for (Rank &rank : ranks) rank.apply(update(1));
    EXPECT_EQ(catch_up(ranks).incomplete_rank, 1);
}

// All generations are equal afterwards, and a rank is incomplete if and only if it missed a change
// that is not an update, or is partly set.
TEST(ValueState, RandomHistories) {
    std::mt19937 random(5);
    for (int repetition = 0; repetition < 20'000; ++repetition) {
        std::vector<Rank> ranks(1 + random() % 5);
        std::uint64_t updates = 0;
        for (unsigned event = 0; event < 1 + random() % 6; ++event) {
            const bool sets = random() % 3 == 0, skipped = random() % 4 == 0;
            if (!sets) ++updates;
            for (Rank &rank : ranks) {
                if (sets) rank.set_all();
                else rank.apply(update(updates, skipped));
            }
        }
        // The last event reaches some ranks only.
        const bool sets = random() % 2 == 0, skipped = random() % 4 == 0;
        std::vector<bool> reached;
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
            reached.push_back(random() % 2 == 0);
            if (!reached[rank]) continue;
            if (sets) ranks[rank].set_all();
            else ranks[rank].apply(update(updates + 1, skipped));
        }
        const bool any = std::ranges::count(reached, true) > 0;
        const auto first_missed = std::ranges::find(reached, false);
        const bool incomplete = sets && any && first_missed != reached.end();
        const ValueAgreement agreed = catch_up(ranks);
        ASSERT_EQ(agreed.incomplete_rank.has_value(), incomplete);
        if (incomplete) {
            ASSERT_EQ(*agreed.incomplete_rank, first_missed - reached.begin());
        }
        for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
            ASSERT_EQ(ranks[rank].values.generation(), agreed.generation);
            ASSERT_EQ(ranks[rank].values.complete(), !(incomplete && !reached[rank]));
        }
    }
}

}  // namespace
}  // namespace vescomm::fsdp
