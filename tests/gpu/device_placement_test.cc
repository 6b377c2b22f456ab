// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_placement.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"

namespace vescomm::internal {
namespace {

using Counts = std::vector<std::int64_t>;
using Kind = DevicePlacement::Kind;

DevicePlacement place(const Counts &counts, std::size_t element, Kind kind) {
    return {Layout::from_counts(counts), element, kind};
}

// All combinations of these counts of elements, for 1 to 4 ranks.
void for_all_counts(const std::function<void(const Counts &)> &body) {
    const Counts values = {0, 1, 3, 4};
    for (std::size_t ranks = 1; ranks <= 4; ++ranks) {
        std::size_t cases = 1;
        for (std::size_t k = 0; k < ranks; ++k) cases *= values.size();
        for (std::size_t n = 0; n < cases; ++n) {
            Counts counts;
            for (std::size_t k = 0, rest = n; k < ranks; ++k, rest /= values.size())
                counts.push_back(values[rest % values.size()]);
            body(counts);
        }
    }
}

TEST(DevicePlacement, ShardsAreApartInEveryKind) {
    for_all_counts([](const Counts &counts) {
        for (const std::size_t element : {1, 2, 4, 16})
            for (const Kind kind : {Kind::memory, Kind::packed, Kind::strided}) {
                const DevicePlacement places = place(counts, element, kind);
                std::uint64_t end = 0;
                for (int rank = 0; rank < places.ranks(); ++rank) {
                    ASSERT_GE(places.begin(rank), end);
                    ASSERT_EQ(places.begin(rank) % element, 0u);
                    ASSERT_EQ(places.bytes(rank),
                              static_cast<std::uint64_t>(counts[static_cast<std::size_t>(rank)]) *
                                  element);
                    if (kind != Kind::strided) {
                        ASSERT_EQ(places.begin(rank), end) << "packed";
                    }
                    end = places.begin(rank) + places.bytes(rank);
                }
                ASSERT_LE(end, places.size());
                if (kind == Kind::memory) {
                    ASSERT_EQ(end, places.size()) << "the caller has no more memory";
                }
            }
    });
}

// The condition under which one collective of equal counts moves all shards in place.
TEST(DevicePlacement, AStrideFitsAllShards) {
    for_all_counts([](const Counts &counts) {
        for (const std::size_t element : {1, 4, 16})
            for (const Kind kind : {Kind::memory, Kind::packed, Kind::strided}) {
                const DevicePlacement places = place(counts, element, kind);
                if (places.stride() == 0) continue;
                ASSERT_GE(places.stride(), places.largest());
                ASSERT_EQ(places.stride() % element, 0u);
                ASSERT_LE(places.stride() * counts.size(), places.size());
                for (int rank = 0; rank < places.ranks(); ++rank) {
                    if (places.bytes(rank) == 0) continue;
                    ASSERT_EQ(places.begin(rank),
                              static_cast<std::uint64_t>(rank) * places.stride());
                }
            }
    });
}

TEST(DevicePlacement, StridedShardsAreAligned) {
    for_all_counts([](const Counts &counts) {
        for (const std::size_t element : {1, 4, 16}) {
            const DevicePlacement places = place(counts, element, Kind::strided);
            ASSERT_FALSE(places.unaligned());
            ASSERT_EQ(places.stride(), device_aligned(places.largest()));
            ASSERT_EQ(places.size(), places.stride() * counts.size());
        }
    });
}

TEST(DevicePlacement, EqualPackedShardsHaveAStride) {
    EXPECT_EQ(place({5, 5, 5}, 4, Kind::memory).stride(), 20u);
    EXPECT_EQ(place({5, 5, 5}, 4, Kind::memory).size(), 60u);
    EXPECT_EQ(place({5, 5, 5}, 4, Kind::memory).unaligned(), 1);
    EXPECT_EQ(place({5}, 4, Kind::memory).stride(), 20u);
    EXPECT_EQ(place({0, 0}, 4, Kind::strided).stride(), 0u);
}

TEST(DevicePlacement, AShortLastShardGetsMemoryOfItsOwn) {
    EXPECT_EQ(place({8, 8, 3}, 4, Kind::memory).stride(), 0u) << "nothing follows the last shard";
    const DevicePlacement places = place({8, 8, 3}, 4, Kind::packed);
    EXPECT_EQ(places.stride(), 32u);
    EXPECT_EQ(places.size(), 96u);
    EXPECT_EQ(place({8, 8, 3, 0, 0}, 4, Kind::packed).size(), 160u);
    EXPECT_EQ(place({8, 3, 8}, 4, Kind::packed).stride(), 0u) << "the distance is not constant";
}

TEST(DevicePlacement, TheMemoryBehindThemIsSmall) {
    // An eighth of the buffer, or a page.
    const std::int64_t M = 1 << 20;
    EXPECT_NE(place({M, M, M, M, M, M, M, M, M / 2}, 1, Kind::packed).stride(), 0u);
    EXPECT_EQ(place({M, M, M, M, M, M, M, M, 0, 0}, 1, Kind::packed).stride(), 0u);
    EXPECT_EQ(place({M, M, M, M, M, M, M, M, 0, 0}, 1, Kind::packed).size(), 8u << 20);
    EXPECT_NE(place({2048, 0, 0}, 1, Kind::packed).stride(), 0u);
    EXPECT_EQ(place({2049, 0, 0}, 1, Kind::packed).stride(), 0u);
}

TEST(DevicePlacement, HugeLayoutsAreRefused) {
    const std::int64_t huge = std::int64_t{1} << 61;
    EXPECT_EQ(place({huge, 0, 0, 0}, 1, Kind::memory).size(), std::uint64_t{1} << 61);
    EXPECT_THROW(place({huge, 0, 0, 0}, 4, Kind::memory), Error);
    EXPECT_THROW(place({huge, 0, 0, 0}, 1, Kind::strided), Error);
}

}  // namespace
}  // namespace vescomm::internal
