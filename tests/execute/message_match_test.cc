// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Fairness, limits and wake-ups of the messages that a rank matches. Which message a receive takes
// is compared with a model in conformance/message_matching_test.cc.
#include "execute/match/message_match.h"

#include <random>

#include "execute/emulated_senders.h"

namespace vescomm::internal {
namespace {

using testing_support::MatchingRank;

constexpr int any = VESCOMM_ANY_SOURCE;
constexpr std::int32_t header = 0, body = 7;

// A server receives a header from any source, then the body from the sender. A client sends its
// next header before the body of the last one, so a header of it is always unexpected.
TEST(MessageMatch, ServesSourcesEquallyIfTheirMessagesOverlap) {
    for (const int ranks : {2, 3, 5, 7}) {
        MatchingRank rank(ranks);
        const auto sources = static_cast<std::size_t>(ranks);
        constexpr int each = 20;
        for (int source = 1; source < ranks; ++source) {
            rank.send(source, header, 5);
            for (int i = 1; i < each; ++i) {
                rank.send(source, header, 5);
                rank.send(source, body, 100);
            }
            rank.send(source, body, 100);
        }
        std::vector<int> served(sources);
        for (int turn = 0; turn < each * (ranks - 1); ++turn) {
            const auto first = rank.post(any, header);
            ASSERT_TRUE(rank.poll(*first));
            const int source = first->header.source;
            ++served[static_cast<std::size_t>(source)];
            const auto second = rank.post(source, body);
            for (int polls = 0; !rank.poll(*second); ++polls) {
                ASSERT_LT(polls, 3);
                rank.advance(source);
            }
            const auto [least, most] = std::minmax_element(served.begin() + 1, served.end());
            ASSERT_LE(*most - *least, 1) << "turn " << turn << " of " << ranks << " ranks";
        }
    }
}

// However the messages came: a source whose message fits is passed over at most once by each of the
// others.
TEST(MessageMatch, ServesEverySourceAfterOneMessageOfEachOther) {
    for (unsigned seed = 0; seed < 500; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        const auto below = [&](int end) {
            return static_cast<int>(random() % static_cast<unsigned>(end));
        };
        const int ranks = 1 + below(7);
        MatchingRank rank(ranks);
        std::vector<int> waiting(static_cast<std::size_t>(ranks));  // messages with tag 1
        std::vector<std::vector<int>> passed(static_cast<std::size_t>(ranks),
                                             std::vector<int>(static_cast<std::size_t>(ranks)));
        for (int call = 0; call < 60; ++call) {
            const int source = below(ranks);
            auto &its = waiting[static_cast<std::size_t>(source)];
            if (below(2) == 0 && its < 2) {
                rank.send(source, 1, static_cast<std::uint64_t>(below(200)));
                ++its;
            }
            if (below(3) == 0) {
                rank.send(source, 2, static_cast<std::uint64_t>(below(200)));
                const auto other = rank.post(source, 2);
                while (!rank.poll(*other)) rank.advance(source);
            }
            if (below(2) == 0 || std::ranges::count(waiting, 0) == ranks) continue;
            const auto receive = rank.post(any, 1);
            ASSERT_TRUE(rank.poll(*receive));
            const auto found = static_cast<std::size_t>(receive->header.source);
            --waiting[found];
            for (std::size_t each = 0; each < waiting.size(); ++each) {
                if (each == found || waiting[each] == 0) continue;
                ASSERT_LE(++passed[each][found], 1) << each << " waits, " << found << " goes on";
            }
            std::ranges::fill(passed[found], 0);
        }
    }
}

// The message in the way is copied by the same poll that observes it: no later event wakes a rank
// that sleeps after it.
TEST(MessageMatch, MakesWayInOnePoll) {
    for (const int source : {0, 1}) {
        MatchingRank rank(2);
        for (int i = 0; i < 4; ++i) rank.send(source, 1, 10);
        rank.send(source, 2, 10);
        const auto receive = rank.post(source, 2);
        EXPECT_FALSE(rank.poll(*receive));
        rank.advance(source);
        EXPECT_EQ(rank.under_way(source), 5u);
        EXPECT_TRUE(rank.poll(*receive));
    }
}

// A source sends messages that nobody receives, and behind them one that is awaited.
void expect_limited(std::uint64_t bytes) {
    constexpr std::uint64_t limit = 100'000;
    MatchingRank rank(2, limit);
    // A message counts with its description.
    const std::uint64_t max_messages = limit / (bytes + sizeof(ArrivedMessage));
    const std::uint64_t sent = max_messages + 10;
    for (std::uint64_t i = 0; i < sent; ++i) rank.send(1, 5, bytes);
    rank.send(1, 6, bytes);
    const auto awaited = rank.post(1, 6);
    EXPECT_EQ(rank.match().obstacle(*awaited), "");
    for (std::uint64_t i = 0; i < 200 * sent; ++i) {
        ASSERT_FALSE(rank.poll(*awaited));
        rank.advance(1);
    }
    // Four of them are in the eager buffers.
    EXPECT_LE(rank.under_way(1), max_messages + 4);
    EXPECT_GT(rank.under_way(1), max_messages / 2);
    const std::string obstacle = rank.match().obstacle(*awaited);
    EXPECT_NE(obstacle.find("messages that nobody has received, and the limit is"),
              std::string::npos)
        << obstacle;
    EXPECT_NE(obstacle.find(std::to_string(bytes) + " u8 with tag 5 from rank 1"),
              std::string::npos)
        << obstacle;
    // Receives free copies.
    for (std::uint64_t i = 0; i < sent; ++i) {
        const auto receive = rank.post(any, 5);
        while (!rank.poll(*receive)) rank.advance(1);
        EXPECT_EQ(receive->header.number, i);
    }
    while (!rank.poll(*awaited)) rank.advance(1);
    EXPECT_EQ(rank.match().obstacle(*awaited), "");
}

TEST(MessageMatch, LimitsTheMemoryOfUnexpectedMessages) {
    for (const std::uint64_t bytes : {0, 1, 63, 64, 65, 128, 1000, 5000}) {
        SCOPED_TRACE(bytes);
        expect_limited(bytes);
    }
}

// A message longer than the limit passes chunk by chunk once it is received.
TEST(MessageMatch, ReceivesAMessageThatExceedsTheLimit) {
    MatchingRank rank(2, 1000);
    for (int i = 0; i < 4; ++i) rank.send(1, 5, 5000);
    rank.send(1, 6, 3);
    const auto awaited = rank.post(1, 6);
    for (int i = 0; i < 200; ++i) {
        ASSERT_FALSE(rank.poll(*awaited));
        rank.advance(1);
    }
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(rank.poll(*rank.post(1, 5)));
    EXPECT_TRUE(rank.poll(*awaited));
}

// A thing in queues that counts how often its tag is compared.
struct Counted {
    std::int32_t value = 0;
    int number = 0;
    Counted *next = nullptr, *last = nullptr, *other_tag = nullptr;
    static inline std::uint64_t comparisons = 0;

    std::int32_t tag() const {
        ++comparisons;
        return value;
    }
};

TEST(TagQueues, ReturnTheOldestOfEachTag) {
    for (unsigned seed = 0; seed < 200; ++seed) {
        std::mt19937 random(seed);
        const int tags = 1 + static_cast<int>(random() % 50);
        std::deque<Counted> all;
        std::map<std::int32_t, std::deque<int>> expected;
        TagQueues<Counted> queues;
        for (int i = 0; i < 400; ++i) {
            const auto tag =
                static_cast<std::int32_t>(random() % static_cast<unsigned>(tags)) * 1024;
            if (random() % 5 < 3) {
                all.push_back({.value = tag, .number = i});
                queues.add(all.back());
                expected[tag].push_back(i);
            }
            const auto other = static_cast<std::int32_t>(random() % 60) * 1024;
            Counted *found = queues.find(other);
            auto &of_tag = expected[other];
            ASSERT_EQ(found == nullptr, of_tag.empty());
            if (found == nullptr) continue;
            ASSERT_EQ(found->number, of_tag.front());
            if (random() % 2 == 0) continue;
            queues.remove(*found);
            of_tag.pop_front();
        }
    }
}

// Many things of one tag, and many tags, in the order that is worst for a list.
TEST(TagQueues, DoNotSearchLinearly) {
    for (const int tags : {1, 2, 1000, 100'000}) {
        constexpr int things = 100'000;
        std::vector<Counted> all(things);
        TagQueues<Counted> queues;
        Counted::comparisons = 0;
        for (int i = 0; i < things; ++i) {
            all[static_cast<std::size_t>(i)] = {.value = i % tags * 4096, .number = i};
            queues.add(all[static_cast<std::size_t>(i)]);
        }
        for (int i = 0; i < things; ++i) {
            Counted *found = queues.find((tags - 1 - i % tags) * 4096);
            ASSERT_NE(found, nullptr);
            queues.remove(*found);
        }
        EXPECT_LT(Counted::comparisons, 12u * things) << tags << " tags";
    }
}

}  // namespace
}  // namespace vescomm::internal
