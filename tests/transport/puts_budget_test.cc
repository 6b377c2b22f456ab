// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The budget of eager puts (transport/eager_flow.h): a receiver that grants no credit keeps few
// bytes, and everything arrives once it grants.
#include <gtest/gtest.h>

#include "transport/eager_flow.h"
#include "transport/put_ranks.h"

namespace vescomm::internal {
namespace {

using namespace put_ranks;

class SmallBudget {
public:
    explicit SmallBudget(std::uint64_t bytes) { eager_budget_bytes = bytes; }
    ~SmallBudget() { eager_budget_bytes = before_; }
    SmallBudget(const SmallBudget &) = delete;
    SmallBudget &operator=(const SmallBudget &) = delete;

private:
    const std::uint64_t before_ = eager_budget_bytes;
};

class Budget : public testing::TestWithParam<NetworkKind> {};

INSTANTIATE_TEST_SUITE_P(Over, Budget, testing::ValuesIn(all_networks()),
                         [](const auto &info) { return name_of(info.param); });

constexpr SignalName credit{3, 0}, arrived{3, 1}, blocked{3, 2}, go{3, 3};

Put eager_put(const std::vector<std::byte> &source, std::uint64_t value) {
    Put put{1,       source.data(), 1,      source.size() * (value - 1), source.size(),
            arrived, value,         nullptr};
    put.credit = value;
    put.credit_flag = credit.flag;
    return put;
}

// Rank 0 makes eager puts until it may not, then waits for the credit of each put. Rank 1 grants
// `at_once` credits at a time, after rank 0 has been stopped.
void fill(NetworkKind network, std::size_t bytes, std::uint64_t budget, std::uint64_t at_once) {
    const SmallBudget small(budget);
    run_ranks(network, 2, [&](Rank &self) {
        constexpr std::uint64_t puts = 300;
        self.share(1, puts * bytes);
        if (self.rank == 0) {
            std::vector<std::vector<std::byte>> sources;
            for (std::uint64_t value = 1; value <= puts; ++value)
                sources.push_back(make_bytes(value, bytes));
            std::uint64_t value = 1;
            for (; value <= puts && self.transport->may_put_eagerly(1, credit, value, false);
                 ++value)
                self.transport->put(eager_put(sources[value - 1], value));
            // The number of puts that were made is the value of the signal.
            const std::uint64_t made = value - 1;
            EXPECT_GE(made, 1u);
            EXPECT_LE((made - 1) * (bytes + 256), budget);
            self.transport->signal(1, blocked, made);
            for (; value <= puts; ++value) {
                self.wait([&] { return self.transport->may_put_eagerly(1, credit, value, false); });
                self.transport->put(eager_put(sources[value - 1], value));
            }
            self.wait_for(1, go, 1);
            return;
        }
        self.wait_for(0, blocked, 1);
        EXPECT_EQ(self.transport->signalled(0, arrived), 0u);
        EXPECT_LT(self.transport->signalled(0, blocked), puts);
        for (std::uint64_t value = 1; value <= puts; ++value) {
            if (value % at_once == 1 || at_once == 1)
                self.transport->grant_credit(0, credit, std::min(puts, value + at_once - 1));
            self.wait_for(0, arrived, value);
            EXPECT_EQ(first_difference(self.arena.data() + bytes * (value - 1), value, bytes),
                      bytes);
        }
        self.transport->signal(0, go, 1);
    });
}

TEST_P(Budget, BoundsWhatAReceiverKeepsUntilItGrants) {
    for (const std::uint64_t at_once : {1, 7, 300}) {
        SCOPED_TRACE(testing::Message() << at_once << " credits at a time");
        fill(GetParam(), 4096, 64 << 10, at_once);
        fill(GetParam(), 8, 10'000, at_once);
        fill(GetParam(), 40'000, 1, at_once);
    }
}

// The budget stays used up, because its puts are never expected. Another put passes once its credit
// is granted: after rank 0 has asked for it, or before.
void pass(NetworkKind network, bool granted_before) {
    const SmallBudget small(1000);
    run_ranks(network, 2, [&](Rank &self) {
        constexpr SignalName other{5, 0}, other_arrived{5, 1};
        self.share(1, 4096);
        if (self.rank == 0) {
            const auto source = make_bytes(1, 2000);
            ASSERT_TRUE(self.transport->may_put_eagerly(1, credit, 1, false));
            self.transport->put(eager_put(source, 1));
            if (granted_before) self.wait_for(1, go, 1);
            EXPECT_FALSE(self.transport->may_put_eagerly(1, other, 9, false));
            EXPECT_FALSE(self.transport->may_put_eagerly(1, credit, 2, false));
            self.transport->signal(1, blocked, 1);
            self.wait([&] { return self.transport->may_put_eagerly(1, other, 9, false); });
            EXPECT_FALSE(self.transport->may_put_eagerly(1, other, 10, false));
            Put put{1, source.data(), 1, 0, 2000, other_arrived, 9, nullptr};
            put.credit = 9;
            self.transport->put(put);
            self.wait_for(1, go, 2);
            return;
        }
        if (granted_before) {
            self.transport->grant_credit(0, other, 9);
            self.transport->signal(0, go, 1);
        }
        self.wait_for(0, blocked, 1);
        if (!granted_before) {
            self.transport->grant_credit(0, other, 8);
            self.transport->grant_credit(0, other, 9);
        }
        self.wait_for(0, other_arrived, 9);
        EXPECT_EQ(first_difference(self.arena.data(), 1, 2000), 2000u);
        EXPECT_EQ(self.transport->signalled(0, arrived), 0u);
        self.transport->signal(0, go, 2);
    });
}

TEST_P(Budget, LetsAPutPassWhoseCreditIsGrantedLater) {
    pass(GetParam(), false);
}

TEST_P(Budget, LetsAPutPassWhoseCreditWasGrantedBefore) {
    pass(GetParam(), true);
}

// The charges of sender and receiver agree, however a transport divides puts into messages:
// otherwise the budget would shrink with every put, and the last put would wait for ever. A budget
// of one byte permits a put only if nothing at all is under way.
void put_in_parts(NetworkKind network, std::uint64_t budget) {
    const SmallBudget small(budget);
    run_ranks(network, 2, [](Rank &self) {
        constexpr std::size_t capacity = 1 << 20;
        constexpr std::uint64_t rounds = 400;
        self.share(1, capacity);
        if (self.rank == 1) {
            for (std::uint64_t round = 1; round <= rounds; ++round) {
                self.transport->grant_credit(0, credit, round);
                self.wait_for(0, arrived, round);
            }
            // Nothing more is granted: only a budget that is not used up lets the last put leave.
            self.wait_for(0, blocked, 1);
            self.transport->grant_credit(0, credit, rounds + 1);
            self.wait_for(0, arrived, rounds + 1);
            self.transport->signal(0, go, 1);
            return;
        }
        const auto source = make_bytes(1, capacity);
        const auto put = [&](std::size_t bytes, std::uint64_t value, std::uint64_t run) {
            Put part{1, source.data(), 1, 0, bytes, arrived, value, nullptr};
            part.credit = run;
            self.transport->put(part);
        };
        const std::size_t sizes[] = {8, 0, 8192, 8193, 5000, 70'000, 300'000, 1};
        for (std::uint64_t round = 1; round <= rounds; ++round) {
            self.wait([&] { return self.transport->may_put_eagerly(1, credit, round, false); });
            for (std::uint64_t part = 0; part < round % 20; ++part)
                put(sizes[(round + part) % std::size(sizes)], 0, round);
            put(sizes[round % 7], round, round);
        }
        self.wait([&] { return self.transport->may_put_eagerly(1, credit, rounds + 1, false); });
        put(8, rounds + 1, rounds + 1);
        self.transport->signal(1, blocked, 1);
        self.wait_for(1, go, 1);
    });
}

TEST_P(Budget, IsCompleteAgainAfterPutsInParts) {
    put_in_parts(GetParam(), 1);
    put_in_parts(GetParam(), 100'000);
}

}  // namespace
}  // namespace vescomm::internal
