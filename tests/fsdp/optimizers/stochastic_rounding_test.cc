// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/optimizers/stochastic_rounding.h"

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
    return static_cast<std::uint32_t>(internal::random_word(of, element / 4) >>
                                      (element % 4 * 16)) &
           0xffff;
}

std::vector<std::uint16_t> rounded(const std::vector<float> &from, std::uint64_t of, int isa,
                                   std::uint64_t first = 0, vescomm_type_t type = VESCOMM_BF16) {
    std::vector<std::uint16_t> to(from.size());
    rounding_loop(type, isa)(to.data(), from.data(), from.size(), of, first);
    return to;
}

// The value of an f16, without an infinity.
double value_of(std::uint16_t code) {
    const int exponent = code >> 10 & 0x1f, fraction = code & 0x3ff;
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    return code >> 15 != 0 ? -magnitude : magnitude;
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
    for (const vescomm_type_t type : {VESCOMM_BF16, VESCOMM_F16}) {
        const auto whole = rounded(from, stream, 0, 3, type);
        for (std::size_t begin = 0; begin < 70; ++begin)
            for (std::size_t count = 0; begin + count <= from.size(); ++count) {
                std::vector<std::uint16_t> to(count + 2, 0xabcd);
                rounding_loop(type, GetParam())(to.data() + 1, from.data() + begin, count, stream,
                                                3 + begin);
                for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(to[i + 1], whole[begin + i]);
                ASSERT_EQ(to.front(), 0xabcd);
                ASSERT_EQ(to.back(), 0xabcd);
            }
    }
}

class RoundF16 : public ::testing::TestWithParam<int> {};

TEST_P(RoundF16, KeepsEveryF16) {
    std::vector<float> from;
    std::vector<std::uint16_t> codes;
    for (std::uint32_t code = 0; code < 0x10000; ++code) {
        if ((code & 0x7c00) == 0x7c00) continue;
        codes.push_back(static_cast<std::uint16_t>(code));
        from.push_back(static_cast<float>(value_of(codes.back())));
    }
    for (std::int64_t step = 1; step <= 4; ++step) {
        const auto to = rounded(from, rounding_stream(9, step), GetParam(), 0, VESCOMM_F16);
        for (std::size_t i = 0; i < codes.size(); ++i) ASSERT_EQ(to[i], codes[i]);
    }
}

// Subnormal, normal and infinite ones.
TEST_P(RoundF16, BecomesANeighbour) {
    std::vector<float> from;
    for (std::uint32_t i = 0; i < 100'000; ++i) from.push_back(as_float(i * 42949U));
    for (std::uint32_t i = 0; i < 100'000; ++i) from.push_back(as_float(0x33000000 + i * 2017U));
    for (std::size_t i = 0; i < 200'000; i += 2) from[i] = -from[i];
    const auto to = rounded(from, stream, GetParam(), 0, VESCOMM_F16);
    for (std::size_t i = 0; i < from.size(); ++i) {
        const double x = std::fabs(static_cast<double>(from[i]));
        const std::uint16_t code = to[i] & 0x7fff;
        if (std::isnan(from[i])) {
            ASSERT_EQ(to[i], 0x7e00);
            continue;
        }
        ASSERT_EQ(to[i] >> 15 != 0, std::signbit(from[i])) << from[i];
        if (x >= 65536) {
            ASSERT_EQ(code, 0x7c00) << x;
        } else {
            // 65536 stands for infinity.
            const double upper = code == 0x7c00 ? 65536 : value_of(code);
            const int exponent = x < 0x1p-14 ? -14 : std::ilogb(x);
            ASSERT_LT(std::fabs(upper - x), std::ldexp(1, exponent - 10)) << x;
        }
    }
}

TEST_P(RoundF16, HasTheValueAsItsMean) {
    // 1.25 and a half distances, near 0, a subnormal number, across the smallest normal one.
    for (const double x : {1.25 + 0x1p-11, -3.0 - 0x1p-21, 0x1p-25, -0x1.23456p-17,
                           0x1.ffdp-15 + 0x1p-26, 65504.0 + 8}) {
        constexpr std::size_t count = std::size_t{1} << 20;
        const std::vector<float> from(count, static_cast<float>(x));
        double mean = 0;
        for (const std::uint16_t code : rounded(from, stream, GetParam(), 0, VESCOMM_F16))
            mean += (code == 0x7c00 ? 65536 : value_of(code)) / static_cast<double>(count);
        const int exponent = std::fabs(x) < 0x1p-14 ? -14 : std::ilogb(x);
        // The deviation of one result is at most half of the distance of its neighbours.
        EXPECT_NEAR(mean, x, 6 * std::ldexp(0.5, exponent - 10) / 1024 + 0x1p-40) << x;
        EXPECT_NE(mean, 0) << x;
    }
}

TEST(RoundingStream, DiffersBetweenKeysAndSteps) {
    constexpr std::uint64_t step = 3;
    for (std::uint64_t key = 0; key < 100; ++key) {
        EXPECT_NE(rounding_stream(key, step), rounding_stream(key + 1, step));
        EXPECT_NE(rounding_stream(key, step), rounding_stream(key, step + 1));
    }
    // Fixed, so that a training can be repeated with a later version.
    EXPECT_EQ(rounding_stream(1, 1),
              internal::mix_bits(internal::mix_bits(1 ^ 0x726f756e64) + internal::stream_gamma));
    EXPECT_EQ(rounding_bits(0, 0), internal::mix_bits(internal::stream_gamma) & 0xffff);
    EXPECT_EQ(rounding_bits(0, 7), internal::mix_bits(2 * internal::stream_gamma) >> 48);
}

// As kernels on device memory read them.
TEST(RoundingStream, HasTheBitsOfFourElementsFromAnyOneOn) {
    for (std::uint64_t first = 0; first < 20; ++first)
        for (std::uint64_t k = 0; k < 4; ++k)
            EXPECT_EQ(internal::random_bits(stream, first) >> (16 * k) & 0xffff,
                      rounding_bits(stream, first + k));
}

INSTANTIATE_TEST_SUITE_P(Isa, RoundF16, ::testing::Range(0, internal::supported_isas()));
INSTANTIATE_TEST_SUITE_P(Isa, RoundBf16, ::testing::Range(0, internal::supported_isas()));

}  // namespace
}  // namespace vescomm::fsdp
