// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/yields.h"

#include <gtest/gtest.h>

namespace vescomm::internal {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

class YieldsTest : public ::testing::Test {
protected:
    // A yield that takes so long. Returns what record() does.
    bool yield(Clock::duration took) {
        const Clock::time_point begin = now_;
        now_ += took;
        return yields_.record(begin, now_);
    }
    // The time from now on in which yields are not worthwhile, to the millisecond.
    milliseconds rest() const {
        milliseconds rest{0};
        while (!yields_.worthwhile(now_ + rest)) ++rest;
        return rest;
    }

    Clock::time_point now_ = Clock::now();
    Yields yields_;
};

TEST_F(YieldsTest, AreWorthwhileAtFirst) {
    EXPECT_TRUE(yields_.worthwhile(now_));
}

TEST_F(YieldsTest, StayWorthwhileWhileTheyAreQuick) {
    for (int i = 0; i < 1000; ++i) {
        EXPECT_TRUE(yield(microseconds(1)));
        EXPECT_TRUE(yield(Yields::slow));
        EXPECT_TRUE(yields_.worthwhile(now_));
    }
}

TEST_F(YieldsTest, RestLongerAfterEachSlowOne) {
    for (const int rests : {1, 2, 4, 8, 16, 32, 32, 32}) {
        EXPECT_FALSE(yield(milliseconds(3)));
        EXPECT_EQ(rest(), milliseconds(3 * rests));
        now_ += rest();
        EXPECT_TRUE(yields_.worthwhile(now_));
    }
}

TEST_F(YieldsTest, StartAgainAfterAQuickOne) {
    for (int i = 0; i < 5; ++i) {
        yield(milliseconds(3));
        now_ += rest();
    }
    EXPECT_TRUE(yield(microseconds(2)));
    EXPECT_FALSE(yield(milliseconds(3)));
    EXPECT_EQ(rest(), milliseconds(3));
}

// The process was suspended meanwhile.
TEST_F(YieldsTest, RestNoLongerThanASecond) {
    for (int i = 0; i < 10; ++i) {
        EXPECT_FALSE(yield(hours(100)));
        EXPECT_GT(rest(), milliseconds(900));
        EXPECT_LE(rest(), Yields::longest_rest);
    }
}

TEST_F(YieldsTest, DoNotYieldWhileTheyRest) {
    now_ = Clock::now() - milliseconds(2);
    yield(milliseconds(500));
    EXPECT_FALSE(yields_.yield());
}

}  // namespace
}  // namespace vescomm::internal
