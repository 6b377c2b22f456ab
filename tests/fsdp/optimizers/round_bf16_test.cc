// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/optimizers/round_bf16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "execute/isa.h"

namespace vescomm::fsdp {
namespace {

constexpr std::uint64_t stream = rounding_stream(0x1234, 7);

float as_float(std::uint32_t bits) {
    return std::bit_cast<float>(bits);
}

// The random bits of one element.
constexpr std::uint32_t rounding_bits(std::uint64_t of, std::uint64_t element) {
    return static_cast<std::uint32_t>(rounding_word(of, element / 4) >> (element % 4 * 16)) &
           0xffff;
}

std::vector<std::uint16_t> rounded(const std::vector<float> &from, std::uint64_t of, int isa,
                                   std::uint64_t first = 0) {
    std::vector<std::uint16_t> to(from.size());
    round_to_bf16(to.data(), from.data(), from.size(), of, first, isa);
    return to;
}

class RoundBf16 : public ::testing::TestWithParam<int> {};

// The definition: the random bits are added, and the lower half is dropped.
TEST_P(RoundBf16, AddsTheBitsOfEachElement) {
    std::vector<float> from;
    for (std::uint32_t i = 0; i < 1000; ++i) from.push_back(as_float(i * 4194301U));
    const auto to = rounded(from, stream, GetParam(), 5);
    for (std::size_t i = 0; i < from.size(); ++i) {
        if (std::isnan(from[i])) {
            EXPECT_EQ(to[i], 0x7fc0) << i;
        } else {
            const std::uint32_t bits = std::bit_cast<std::uint32_t>(from[i]);
            EXPECT_EQ(to[i], (bits + rounding_bits(stream, 5 + i)) >> 16) << i;
        }
    }
}

TEST_P(RoundBf16, KeepsEveryBf16) {
    std::vector<float> from;
    for (std::uint32_t i = 0; i < 0x10000; ++i) from.push_back(as_float(i << 16));
    for (std::int64_t step = 1; step <= 4; ++step) {
        const auto to = rounded(from, rounding_stream(9, step), GetParam());
        for (std::uint32_t i = 0; i < 0x10000; ++i)
            ASSERT_EQ(to[i], std::isnan(from[i]) ? 0x7fc0U : i);
    }
}

// Over all random bits, exactly k of 2^16 results round away from zero where the lower half is k.
// The bits of a stream are random, so a mean over many steps comes as close as 2^20 draws permit.
TEST_P(RoundBf16, HasTheValueAsItsMean) {
    for (const std::uint32_t fraction : {1U, 0x4000U, 0x8000U, 0xffffU})
        for (const std::uint32_t upper : {0x3f80U, 0xc049U, 0x0001U, 0x8000U}) {
            constexpr std::size_t count = std::size_t{1} << 20;
            const std::vector<float> from(count, as_float((upper << 16) + fraction));
            std::size_t away = 0;
            for (const std::uint16_t one : rounded(from, stream, GetParam())) {
                ASSERT_TRUE(one == upper || one == upper + 1);
                away += one == upper + 1 ? 1 : 0;
            }
            const double p = fraction / 65536.0;
            const double deviation = std::sqrt(p * (1 - p) * static_cast<double>(count));
            EXPECT_NEAR(static_cast<double>(away), p * static_cast<double>(count), 6 * deviation);
        }
}

TEST_P(RoundBf16, ReachesInfinityOnlyBeyondTheLargestBf16) {
    const float infinity = std::numeric_limits<float>::infinity();
    const std::vector<float> from(200, as_float(0x7f7f8000));
    for (const std::uint16_t one : rounded(from, stream, GetParam()))
        EXPECT_TRUE(one == 0x7f7f || one == 0x7f80) << one;
    for (const std::uint16_t one : rounded({infinity, infinity, infinity}, stream, GetParam()))
        EXPECT_EQ(one, 0x7f80);
    for (const std::uint16_t one : rounded({-infinity, -infinity}, stream, GetParam()))
        EXPECT_EQ(one, 0xff80);
}

TEST_P(RoundBf16, DoesNotDependOnCutsAndInstructions) {
    std::vector<float> from;
    for (int i = 0; i < 300; ++i) from.push_back(std::sin(static_cast<float>(i)) * 3);
    const auto whole = rounded(from, stream, 0, 3);
    for (std::size_t begin = 0; begin < 70; ++begin)
        for (std::size_t count = 0; begin + count <= from.size(); ++count) {
            std::vector<std::uint16_t> to(count + 2, 0xabcd);
            round_to_bf16(to.data() + 1, from.data() + begin, count, stream, 3 + begin, GetParam());
            for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(to[i + 1], whole[begin + i]);
            ASSERT_EQ(to.front(), 0xabcd);
            ASSERT_EQ(to.back(), 0xabcd);
        }
}

TEST(RoundingStream, DiffersBetweenKeysAndSteps) {
    constexpr std::uint64_t step = 3;
    for (std::uint64_t key = 0; key < 100; ++key) {
        EXPECT_NE(rounding_stream(key, step), rounding_stream(key + 1, step));
        EXPECT_NE(rounding_stream(key, step), rounding_stream(key, step + 1));
    }
    // Fixed, so that a training can be repeated with a later version.
    EXPECT_EQ(rounding_stream(1, 1), mix_bits(mix_bits(1 ^ 0x726f756e64) + stream_gamma));
    EXPECT_EQ(rounding_bits(0, 0), mix_bits(stream_gamma) & 0xffff);
    EXPECT_EQ(rounding_bits(0, 7), mix_bits(2 * stream_gamma) >> 48);
}

INSTANTIATE_TEST_SUITE_P(Isa, RoundBf16, ::testing::Range(0, internal::supported_isas()));

}  // namespace
}  // namespace vescomm::fsdp
