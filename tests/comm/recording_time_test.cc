// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/recording_time.h"

#include <gtest/gtest.h>

namespace vescomm::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A file system that hangs: each recording takes all the time that it gets.
TEST(RecordingTime, OfManyCommunicatorsIsThatOfOne) {
    RecordingTime time(seconds(1));
    Clock::time_point now = Clock::now();
    Clock::duration all{};
    for (int communicator = 0; communicator < 200; ++communicator) {
        const Clock::duration left = time.left(now);
        ASSERT_GE(left, Clock::duration::zero());
        time.spend(now, now + left);
        now += left + milliseconds(1);
        all += left;
    }
    EXPECT_EQ(all, seconds(1));
}

TEST(RecordingTime, QuickRecordingsLeaveTimeForAll) {
    RecordingTime time(seconds(1));
    Clock::time_point now = Clock::now();
    for (int communicator = 0; communicator < 200; ++communicator) {
        EXPECT_GT(time.left(now), Clock::duration::zero()) << communicator;
        time.spend(now, now + milliseconds(2));
        now += milliseconds(3);
    }
}

TEST(RecordingTime, IsThereAgainForALaterFailure) {
    RecordingTime time(seconds(1));
    const Clock::time_point begin = Clock::now();
    time.spend(begin, begin + seconds(2));
    EXPECT_EQ(time.left(begin + seconds(3)), Clock::duration::zero());
    EXPECT_EQ(time.left(begin + seconds(60)), seconds(1));
}

}  // namespace
}  // namespace vescomm::internal
