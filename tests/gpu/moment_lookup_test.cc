// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The lookup of gpu/kernels/moment_lookup.h gives the codes of the loops on host memory.
#include "gpu/kernels/moment_lookup.h"

#include <gtest/gtest.h>

#include <vector>

namespace vescomm::internal::VESCOMM_ISA {
namespace {

constexpr std::uint32_t one = power_bits(0), infinitesimal = 1;
constexpr Factors identity = {1, 1, false};

// The bits of the smallest magnitude that has this index or a higher one.
template <bool first>
std::uint32_t boundary_of(std::int32_t index) {
    std::uint32_t below = 0, at = one;
    while (at - below > 1) {
        const std::uint32_t middle = below + (at - below) / 2;
        if (moment_index<first>(as_float(middle)) < index) below = middle;
        else at = middle;
    }
    return at;
}

template <bool first>
void expect_codes(std::uint32_t bits, const Factors &factors = identity) {
    constexpr MomentLookup lookup = make_moment_lookup(first);
    for (const std::uint32_t sign : {0u, 0x80000000u}) {
        const float moment = as_float(bits | sign);
        ASSERT_EQ(look_up_moment<first>(lookup, moment, factors),
                  encode_moment<first>(moment, factors))
            << moment << ", book " << first;
    }
}

template <bool first>
void expect_codes_around(std::uint32_t bits, std::uint32_t distance) {
    for (std::uint32_t at = bits > distance ? bits - distance : 0; at <= bits + distance; ++at)
        ASSERT_NO_FATAL_FAILURE(expect_codes<first>(at));
}

template <bool first>
void expect_codes_at_all_boundaries() {
    const MomentSegments segments = make_moment_segments(first);
    const std::int32_t last = segments.limits[moment_segments - 1];
    EXPECT_EQ(last, first ? 128 : 255);
    std::uint32_t before = 0;
    for (std::int32_t index = 1; index <= last; ++index) {
        const std::uint32_t bits = boundary_of<first>(index);
        ASSERT_EQ(moment_index<first>(as_float(bits)), index);
        ASSERT_GT(bits, before);
        ASSERT_NO_FATAL_FAILURE(expect_codes_around<first>(bits, 4));
        before = bits;
    }
}

TEST(MomentLookup, HasTheCodesOfTheHostAtAllBoundaries) {
    expect_codes_at_all_boundaries<true>();
    expect_codes_at_all_boundaries<false>();
}

TEST(MomentLookup, HasTheCodesOfTheHostWhereGuessesGrow) {
    std::uint32_t guess = 0, guesses = 0;
    for (std::uint32_t bits = 0; bits <= one; bits += 1 << 10) {
        if (moment_guess(bits) == guess) continue;
        EXPECT_EQ(moment_guess(bits), guess + 1);
        guess = moment_guess(bits);
        ++guesses;
        for (std::uint32_t at = bits - (1 << 10); at <= bits; ++at) {
            ASSERT_NO_FATAL_FAILURE(expect_codes<true>(at));
            ASSERT_NO_FATAL_FAILURE(expect_codes<false>(at));
        }
    }
    EXPECT_EQ(guesses, moment_segments - 2);
}

// From 0 up to 1 with the errors of a magnitude that is multiplied by a reciprocal.
TEST(MomentLookup, HasTheCodesOfTheHostEverywhere) {
    for (std::uint32_t bits = 0; bits <= one; bits += 1009) {
        ASSERT_NO_FATAL_FAILURE(expect_codes<true>(bits));
        ASSERT_NO_FATAL_FAILURE(expect_codes<false>(bits));
    }
    for (const std::uint32_t bits : {0u, infinitesimal, power_bits(-126), one}) {
        expect_codes_around<true>(bits, 16);
        expect_codes_around<false>(bits, 16);
    }
}

TEST(MomentLookup, HasTheCodesOfTheHostForAnyScale) {
    for (const std::uint32_t max : {infinitesimal, 77u, power_bits(-127), power_bits(-65),
                                    power_bits(80) + 12345, infinity - 1}) {
        float scale = 0;
        const Factors factors = factors_of<MomentCode>(max, &scale);
        for (std::uint32_t part = 0; part < 5000; ++part) {
            const auto bits = static_cast<std::uint32_t>(std::uint64_t{max} * part / 4999);
            ASSERT_NO_FATAL_FAILURE(expect_codes<true>(bits, factors));
            ASSERT_NO_FATAL_FAILURE(expect_codes<false>(bits, factors));
        }
    }
}

}  // namespace
}  // namespace vescomm::internal::VESCOMM_ISA
