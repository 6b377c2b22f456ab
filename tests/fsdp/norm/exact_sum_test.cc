// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/norm/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "execute/isa.h"

namespace vescomm::fsdp {
namespace {

using Words = std::vector<std::int64_t>;
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

Words words_of(const ExactSum &sum) {
    return {sum.words().begin(), sum.words().end()};
}

// The sum of squares by integers: one bit at a time, into a number of 704 bits.
class Reference {
public:
    void add(float x) {
        if (std::isnan(x)) {
            ++nans_;
        } else if (std::isinf(x)) {
            ++infinities_;
        } else if (x != 0) {
            int exponent = 0;
            const auto mantissa =
                static_cast<std::uint64_t>(std::ldexp(std::frexp(std::fabs(x), &exponent), 24));
            const std::uint64_t square = mantissa * mantissa;
            const int place = 2 * (exponent - 24) - ExactSum::min_exponent;
            for (int bit = 0; bit < 48; ++bit)
                if ((square >> bit & 1) != 0) add_bit(place + bit);
        }
    }

    Words words() const {
        Words words(ExactSum::word_count);
        for (int bit = 0; bit < 32 * ExactSum::digits; ++bit)
            words[bit / 32] += static_cast<std::int64_t>(bits_[bit]) << bit % 32;
        words[ExactSum::digits] = infinities_;
        words[ExactSum::digits + 1] = nans_;
        return words;
    }

    // Rounds to nearest, ties to even, from the bits.
    double value() const {
        int top = 703;
        while (top >= 0 && bits_[top] == 0) --top;
        if (top < 0) return 0;
        std::uint64_t kept = 0;
        for (int bit = top; bit > top - 53; --bit) kept = kept << 1 | (bit >= 0 ? bits_[bit] : 0u);
        const bool half = top >= 53 && bits_[top - 53] != 0;
        const bool below = top >= 54 && std::find(bits_, bits_ + top - 53, 1) != bits_ + top - 53;
        if (half && (below || kept % 2 == 1)) ++kept;
        return std::ldexp(static_cast<double>(kept), top - 52 + ExactSum::min_exponent);
    }

private:
    void add_bit(int bit) {
        while (bits_[bit] == 1) bits_[bit++] = 0;
        bits_[bit] = 1;
    }

    std::uint8_t bits_[704] = {};
    std::int64_t infinities_ = 0, nans_ = 0;
};

Reference reference_of(std::span<const float> values) {
    Reference reference;
    for (const float x : values) reference.add(x);
    return reference;
}

ExactSum sum_of(std::span<const float> values, int isa) {
    ExactSum sum;
    sum.add_squares(values.data(), VESCOMM_F32, values.size(), isa);
    return sum;
}

// Distributions of values; each has a name for messages.
struct Values {
    std::string name;
    std::vector<float> values;
};

std::vector<Values> distributions(unsigned seed, std::size_t n) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::uniform_int_distribution<std::uint32_t> bits;
    std::vector<Values> all{{"normal", {}},     {"wide", {}},  {"any finite bits", {}},
                            {"subnormal", {}},  {"huge", {}},  {"mostly zero", {}},
                            {"two scales", {}}, {"equal", {}}, {"powers of two", {}}};
    const float max = std::numeric_limits<float>::max();
    for (std::size_t i = 0; i < n; ++i) {
        const float x = normal(random);
        float any = std::bit_cast<float>(bits(random));
        while (!std::isfinite(any)) any = std::bit_cast<float>(bits(random));
        const std::uint32_t sign = random() % 2 << 31;
        all[0].values.push_back(x);
        all[1].values.push_back(std::ldexp(x, -static_cast<int>(random() % 60)));
        all[2].values.push_back(any);
        all[3].values.push_back(std::bit_cast<float>((bits(random) & 0x7fffff) | sign));
        all[4].values.push_back(random() % 2 == 0 ? max : -max);
        all[5].values.push_back(random() % 100 == 0 ? any : random() % 2 == 0 ? 0.0f : -0.0f);
        all[6].values.push_back(random() % 2 == 0 ? x * 1e18f : x * 1e-20f);
        all[7].values.push_back(-0x1.fffffep-3f);
        all[8].values.push_back(std::ldexp(1.0f, static_cast<int>(random() % 277) - 149));
    }
    return all;
}

TEST(ExactSum, EqualsTheSumByIntegersForAllMagnitudes) {
    for (const std::size_t n : {1, 2, 3, 5, 7, 255, 256, 257, 1023, 1024, 1025, 5000}) {
        for (const Values &each : distributions(static_cast<unsigned>(n), n)) {
            const Reference reference = reference_of(each.values);
            for (int isa = 0; isa < internal::supported_isas(); ++isa) {
                SCOPED_TRACE(each.name + ", " + std::to_string(n) + ", " +
                             internal::isa_names[isa]);
                const ExactSum sum = sum_of(each.values, isa);
                ASSERT_EQ(words_of(sum), reference.words());
                ASSERT_EQ(sum.value(), reference.value());
            }
        }
    }
}

TEST(ExactSum, SingleElementsGiveTheirSquare) {
    std::mt19937 random(3);
    for (int i = 0; i < 3000; ++i) {
        const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
        if (!std::isfinite(x)) continue;
        const double square = static_cast<double>(x) * static_cast<double>(x);
        for (int isa = 0; isa < internal::supported_isas(); ++isa)
            ASSERT_EQ(sum_of({&x, 1}, isa).value(), square) << x;
    }
}

TEST(ExactSum, NothingAndZerosGiveZero) {
    const std::vector<float> zeros{0.0f, -0.0f, 0.0f};
    for (int isa = 0; isa < internal::supported_isas(); ++isa) {
        ExactSum sum;
        sum.add_squares(nullptr, VESCOMM_F32, 0, isa);
        EXPECT_EQ(sum.value(), 0);
        EXPECT_EQ(words_of(sum_of(zeros, isa)), Words(ExactSum::word_count));
    }
}

// Cuts the values into random parts, adds each part to the sum of one of `ranks` ranks, and merges
// those as an all_reduce does: word by word, with one normalisation at the end.
TEST(ExactSum, WordsDoNotDependOnOrderCutsAndRanks) {
    std::mt19937 random(4);
    for (const Values &each : distributions(5, 20011)) {
        const Words want = words_of(sum_of(each.values, 0));
        for (const int ranks : {1, 2, 3, 5, 7, 33}) {
            SCOPED_TRACE(each.name + ", " + std::to_string(ranks) + " ranks");
            std::vector<float> shuffled = each.values;
            std::shuffle(shuffled.begin(), shuffled.end(), random);
            std::vector<ExactSum> sums(static_cast<std::size_t>(ranks));
            for (std::size_t begin = 0; begin < shuffled.size();) {
                const std::size_t count =
                    std::min<std::size_t>(random() % 3000, shuffled.size() - begin);
                sums[random() % sums.size()].add_squares(
                    shuffled.data() + begin, VESCOMM_F32, count,
                    static_cast<int>(random()) & 1 ? internal::supported_isas() - 1 : 0);
                begin += count;
            }
            ExactSum total;
            for (const ExactSum &sum : sums) {
                for (std::size_t k = 0; k < ExactSum::word_count; ++k)
                    total.words()[k] += sum.words()[k];
            }
            total.normalise();
            ASSERT_EQ(words_of(total), want);
            ExactSum merged;
            for (const ExactSum &sum : sums) merged.merge(sum);
            ASSERT_EQ(words_of(merged), want);
        }
    }
}

TEST(ExactSum, SixteenBitTypesGiveTheSumOfTheirValues) {
    std::mt19937 random(6);
    for (const std::size_t n : {1, 3, 1023, 1024, 4099}) {
        std::vector<std::uint16_t> codes;
        for (std::size_t i = 0; i < n; ++i) codes.push_back(static_cast<std::uint16_t>(random()));
        Reference bf16, f16;
        for (const std::uint16_t code : codes) {
            bf16.add(std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16));
            const int exponent = code >> 10 & 31, fraction = code & 1023;
            const float magnitude = exponent == 31  ? (fraction == 0 ? infinity : nan)
                                    : exponent == 0 ? std::ldexp(1.0f * fraction, -24)
                                                    : std::ldexp(1024.0f + fraction, exponent - 25);
            f16.add(magnitude);
        }
        for (int isa = 0; isa < internal::supported_isas(); ++isa) {
            ExactSum bf16_sum, f16_sum;
            bf16_sum.add_squares(codes.data(), VESCOMM_BF16, n, isa);
            f16_sum.add_squares(codes.data(), VESCOMM_F16, n, isa);
            ASSERT_EQ(words_of(bf16_sum), bf16.words()) << internal::isa_names[isa] << ", " << n;
            ASSERT_EQ(words_of(f16_sum), f16.words()) << internal::isa_names[isa] << ", " << n;
        }
    }
}

TEST(ExactSum, CountsInfinitiesAndNaNs) {
    for (const std::size_t n : {1, 7, 1024, 3000}) {
        for (const std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
            std::vector<float> values = distributions(7, n)[0].values;
            const float bad[] = {infinity, -infinity, nan, std::bit_cast<float>(0xff800001)};
            for (const float x : bad) {
                values[at] = x;
                const Reference reference = reference_of(values);
                for (int isa = 0; isa < internal::supported_isas(); ++isa) {
                    const ExactSum sum = sum_of(values, isa);
                    ASSERT_EQ(words_of(sum), reference.words());
                    ASSERT_FALSE(sum.finite());
                    ASSERT_EQ(sum.nans(), std::isnan(x) ? 1 : 0);
                    ASSERT_EQ(sum.infinities(), std::isnan(x) ? 0 : 1);
                    ASSERT_EQ(std::isnan(sum.value()), std::isnan(x));
                    ASSERT_EQ(std::isinf(sum.value()), !std::isnan(x));
                }
            }
        }
    }
}

TEST(ExactSum, ValueRoundsTiesToEven) {
    // 2^60 and small squares around half of its last place, 2^8.
    const auto value = [](std::vector<float> values) { return sum_of(values, 0).value(); };
    const float big = 0x1p30f;
    EXPECT_EQ(value({big, 8}), 0x1p60);  // 64, less than half
    EXPECT_EQ(value({big, 8, 8}), 0x1p60);  // a tie
    EXPECT_EQ(value({big, 8, 8, 0x1p-149f}), 0x1p60 + 256);  // just more than a tie
    EXPECT_EQ(value({big, 16, 8, 8}), 0x1p60 + 512);  // a tie next to an odd number
}

}  // namespace
}  // namespace vescomm::fsdp
