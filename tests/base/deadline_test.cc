// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "base/deadline.h"

#include <gtest/gtest.h>

namespace vescomm::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class LoopDeadlineTest : public ::testing::Test {
protected:
    // Looks after so long a round.
    bool look(Clock::duration round) {
        now_ += round;
        return deadline_.look(now_);
    }

    Clock::time_point now_ = Clock::now();
    LoopDeadline deadline_{Deadline::after(10), now_};
};

TEST_F(LoopDeadlineTest, ExpiresInALoopThatRuns) {
    for (int round = 0; round < 99; ++round) {
        EXPECT_FALSE(look(milliseconds(100)));
        EXPECT_FALSE(deadline_.expired());
    }
    look(milliseconds(200));
    EXPECT_TRUE(deadline_.expired());
}

TEST_F(LoopDeadlineTest, DoesNotCountASuspension) {
    look(seconds(1));
    EXPECT_TRUE(look(seconds(600)));
    EXPECT_FALSE(deadline_.expired());
    // 3 s of 10 have passed: the first one, and max_round.
    for (int round = 0; round < 6; ++round) EXPECT_FALSE(look(seconds(1)));
    EXPECT_FALSE(deadline_.expired());
    look(seconds(2));
    EXPECT_TRUE(deadline_.expired());
}

// A loop whose rounds always take long ends all the same.
TEST_F(LoopDeadlineTest, ExpiresInASlowLoop) {
    int rounds = 0;
    while (!deadline_.expired() && rounds < 100) {
        look(seconds(30));
        ++rounds;
    }
    EXPECT_LE(rounds, 6);
}

}  // namespace
}  // namespace vescomm::internal
