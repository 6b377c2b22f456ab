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

    // Operation `sequence`, of reads that take so long.
    void read(std::uint64_t sequence, std::initializer_list<double> seconds) {
        for (const double each : seconds) reader.observe(sequence, 64 << 10, each);
    }
};

TEST(ReadDistance, IsFarAfterSeveralSlowOperations) {
    Pair pair;
    for (std::uint64_t sequence = 1; sequence <= ReadDistance::enough; ++sequence)
        pair.read(sequence, {slow, slow});
    EXPECT_FALSE(pair.writer.far(5));
    pair.read(5, {slow});
    EXPECT_TRUE(pair.writer.far(5));
    // The word is that of the reader: it writes for a peer that is near.
    EXPECT_FALSE(pair.reader.far(5));
}

TEST(ReadDistance, OneFastReadOrOperationIsNear) {
    Pair pair;
    for (std::uint64_t sequence = 1; sequence < 50; ++sequence)
        pair.read(sequence, {slow, sequence % 2 == 0 ? fast : slow, slow});
    EXPECT_FALSE(pair.writer.far(50));
}

TEST(ReadDistance, OnlyProbesAreMeasuredAndWrittenThroughTheCachesOnceFar) {
    Pair pair;
    for (std::uint64_t sequence = 1; sequence < 6; ++sequence) pair.read(sequence, {slow});
    for (std::uint64_t sequence = 6; sequence < 64; ++sequence) {
        EXPECT_TRUE(pair.writer.far(sequence));
        pair.read(sequence, {fast});
    }
    EXPECT_FALSE(pair.writer.far(64));
    pair.read(64, {slow});
    pair.read(65, {fast});
    EXPECT_TRUE(pair.writer.far(65));
    // The cores moved together. The next measured operation judges this one.
    pair.read(128, {fast});
    pair.read(192, {fast});
    EXPECT_FALSE(pair.writer.far(193));
}

}  // namespace
}  // namespace vescomm::internal
