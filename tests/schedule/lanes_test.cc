// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lanes.h"

#include <gtest/gtest.h>

namespace vescomm {
namespace {

TEST(Lanes, GoRoundFromTheNextRankInWhateverOrderPeersCome) {
    const std::vector<int> sorted{1, 4, 5, 8};
    std::vector<int> peers = sorted;
    do {
        EXPECT_EQ(in_turn(peers, 4), (std::vector{5, 8, 1, 4}));
        EXPECT_EQ(in_turn(peers, 9), sorted);
        EXPECT_EQ(in_turn_for(peers, 6), (std::vector{5, 4, 1, 8}));
    } while (std::next_permutation(peers.begin(), peers.end()));
}

}  // namespace
}  // namespace vescomm
