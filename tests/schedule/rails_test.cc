// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/rails.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace vescomm::internal {
namespace {

TEST(Rails, RotatePeersFromTheNextRankForAnyOrderOfInput) {
    const std::vector<int> sorted{1, 4, 5, 8};
    std::vector<int> peers = sorted;
    do {
        EXPECT_EQ(rotated_after(peers, 4), (std::vector{5, 8, 1, 4}));
        EXPECT_EQ(rotated_after(peers, 9), sorted);
        EXPECT_EQ(rotated_for(peers, 6), (std::vector{5, 4, 1, 8}));
    } while (std::next_permutation(peers.begin(), peers.end()));
}

// The flag values of a second schedule begin above all possible values of the first.
TEST(Then, RejectsSchedulesWhoseFlagsCountTo2To24) {
    const auto counting_to = [](std::uint32_t value) {
        Schedule schedule;
        schedule.lanes.emplace_back().signal_node(0, value);
        return schedule;
    };
    const std::uint32_t max = (1u << 24) - 1;
    EXPECT_EQ(join_schedules(0, counting_to(max), counting_to(max)).lanes[1].steps()[1].value,
              2 * max + 1);
    EXPECT_THROW(join_schedules(0, counting_to(max + 1), counting_to(1)), std::logic_error);
    EXPECT_THROW(join_schedules(0, counting_to(1), counting_to(max + 1)), std::logic_error);
}

}  // namespace
}  // namespace vescomm::internal
