// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "base/free_ranges.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace vescomm::internal {
namespace {

// Random calls beside a list of all taken bytes.
TEST(FreeRanges, HandOutWhatIsFreeAndNothingTwice) {
    std::mt19937 random(5);
    constexpr std::uint64_t size = 100;
    for (int round = 0; round < 200; ++round) {
        FreeRanges ranges(size);
        std::vector<int> owner(size, -1);
        std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
        for (int step = 0; step < 200; ++step) {
            if (random() % 2 == 0) {
                const std::uint64_t bytes = 1 + random() % 30;
                const auto offset = ranges.take(bytes);
                std::uint64_t row = 0, longest = 0;
                for (const int one : owner)
                    longest = std::max(longest, row = one < 0 ? row + 1 : 0);
                ASSERT_EQ(offset.has_value(), longest >= bytes);
                if (!offset) continue;
                for (std::uint64_t at = *offset; at < *offset + bytes; ++at) {
                    ASSERT_EQ(owner.at(at), -1);
                    owner[at] = step;
                }
                ASSERT_EQ(ranges.size_at(*offset), bytes);
                taken.emplace_back(*offset, bytes);
            } else if (!taken.empty()) {
                const std::size_t which = random() % taken.size();
                const auto [offset, bytes] = taken[which];
                taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(which));
                ranges.give_back(offset);
                ASSERT_EQ(ranges.size_at(offset), 0u);
                std::fill_n(owner.begin() + static_cast<std::ptrdiff_t>(offset), bytes, -1);
            }
        }
        for (const auto &[offset, bytes] : taken) ranges.give_back(offset);
        ASSERT_EQ(ranges.take(size), 0u);  // all parts were joined
    }
}

TEST(FreeRanges, OfNoBytesHaveNothing) {
    FreeRanges ranges(0);
    EXPECT_EQ(ranges.take(1), std::nullopt);
}

}  // namespace
}  // namespace vescomm::internal
