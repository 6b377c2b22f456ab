// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/read_distance.h"

#include <gtest/gtest.h>

#include <array>

namespace vescomm::internal {
namespace {

constexpr double fast = 1e-6, slow = 1e-4;  // seconds for 64 KiB

// Two ranks; rank 0 reads.
struct Pair {
    std::array<std::atomic<std::uint32_t>, 2> words{};
    ReadDistance reader{{&words[0], &words[1]}, 0}, writer{{&words[0], &words[1]}, 1};
    std::uint64_t sequence = 1;

    bool far() const { return writer.far(sequence); }
    // `operations` of reads that take so long.
    void read(int operations, std::initializer_list<double> seconds,
              std::uint64_t bytes = 64 << 10) {
        for (; operations > 0; --operations, ++sequence)
            for (const double each : seconds) reader.observe(sequence, bytes, each);
    }
    // Operations that take `cached`, or `bypassed` if the writer bypasses the caches. Returns how
    // many it bypassed.
    int run(int operations, double cached, double bypassed, std::uint64_t bytes = 64 << 10) {
        int bypasses = 0;
        for (int k = 0; k < operations; ++k) {
            bypasses += far();
            read(1, {far() ? bypassed : cached}, bytes);
        }
        return bypasses;
    }
};

TEST(ReadDistance, IsFarIfSlowReadsAreMuchFasterPastTheCaches) {
    Pair pair;
    // The last operation is judged when the next one is measured.
    EXPECT_EQ(pair.run(ReadDistance::enough + 1, slow, fast), 0);
    EXPECT_EQ(pair.run(50, slow, fast), 50);
    // The word is that of the reader: it writes for a peer that is near.
    EXPECT_FALSE(pair.reader.far(5));
}

TEST(ReadDistance, SlowReadsThatAreAsSlowPastTheCachesAreNear) {
    Pair pair;
    // One trial.
    EXPECT_EQ(pair.run(10'000, slow, slow / 1.2), ReadDistance::enough);
    // Each size has its own.
    EXPECT_EQ(pair.run(10'000, slow, slow, 1 << 20), ReadDistance::enough);
    EXPECT_EQ(pair.run(10'000, slow, slow / 1.2), 0);
}

TEST(ReadDistance, ReadsThatBecomeMuchSlowerAreTriedAgain) {
    Pair pair;
    pair.run(1'000, slow, slow);
    EXPECT_EQ(pair.run(1'000, 1.5 * slow, slow), 0);
    EXPECT_GT(pair.run(1'000, 10 * slow, slow), 900);
}

TEST(ReadDistance, AnUnusedTrialEnds) {
    Pair pair;
    EXPECT_EQ(pair.run(ReadDistance::enough + 1, slow, fast), 0);
    EXPECT_TRUE(pair.far());
    pair.run(100, slow, slow, 1 << 20);
    EXPECT_FALSE(pair.far());
}

TEST(ReadDistance, OneFastReadOrOperationIsNear) {
    Pair pair;
    for (int k = 0; k < 25; ++k) {
        pair.read(1, {slow, slow, slow});
        pair.read(1, {slow, fast, slow});
    }
    EXPECT_FALSE(pair.far());
}

TEST(ReadDistance, ProbesAreWrittenThroughTheCachesAndFindCoresThatMovedTogether) {
    Pair pair;
    pair.run(20, slow, fast);
    while (pair.sequence % ReadDistance::probe_interval != 0) {
        EXPECT_TRUE(pair.far());
        pair.run(1, slow, fast);
    }
    EXPECT_FALSE(pair.far());
    pair.run(2, slow, fast);
    EXPECT_TRUE(pair.far());
    // The cores move together. A probe is judged by the next operation.
    pair.run(ReadDistance::probe_interval + 2, fast, fast);
    EXPECT_FALSE(pair.far());
}

}  // namespace
}  // namespace vescomm::internal
