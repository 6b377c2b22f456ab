// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/one_way_pace.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace vescomm::internal {
namespace {

TEST(OneWayPace, LetsOneOperationOfAPeriodWait) {
    OneWayPace pace;
    int waits = 0;
    std::uint64_t ahead = 0, most = 0;
    for (std::uint64_t sequence = 1; sequence <= 100 * OneWayPace::period; ++sequence) {
        const bool wait = pace.waits(sequence);
        ahead = wait ? 0 : ahead + 1;
        most = std::max(most, ahead);
        waits += wait;
    }
    EXPECT_EQ(waits, 100);
    EXPECT_LT(most, OneWayPace::period);
}

// Other operations take numbers, too.
TEST(OneWayPace, CountsOtherOperations) {
    OneWayPace pace;
    EXPECT_FALSE(pace.waits(1));
    EXPECT_TRUE(pace.waits(3 * OneWayPace::period));
    EXPECT_FALSE(pace.waits(3 * OneWayPace::period + 1));
}

}  // namespace
}  // namespace vescomm::internal
