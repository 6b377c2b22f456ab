// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/kernels.h"

#include <gtest/gtest.h>

#include <iterator>

#include "execute/isa.h"
#include "tests/execute/kernels_reference.h"

namespace vescomm {
namespace {

constexpr int most_sources = 17;

struct Sum {
    vescomm_type_t type;
    vescomm_type_t to_type;
    bool accumulate;
    float scale;
};

const Sum sums[] = {
    {VESCOMM_F32, VESCOMM_F32, false, 1.0f},   {VESCOMM_F32, VESCOMM_F32, true, 0.3f},
    {VESCOMM_F32, VESCOMM_BF16, false, 0.3f},  {VESCOMM_F32, VESCOMM_BF16, true, 0.25f},
    {VESCOMM_BF16, VESCOMM_F32, false, 1.0f},  {VESCOMM_BF16, VESCOMM_F32, true, 0.3f},
    {VESCOMM_BF16, VESCOMM_BF16, false, 0.3f}, {VESCOMM_BF16, VESCOMM_BF16, true, 1.0f},
};

std::string text(const Sum &sum) {
    return std::string(sum.type == VESCOMM_F32 ? "f32" : "bf16") + " to " +
           (sum.to_type == VESCOMM_F32 ? "f32" : "bf16") + (sum.accumulate ? ", accumulated" : "");
}

using Sources = std::vector<std::vector<char>>;

Sources random_sources(std::mt19937 &random, vescomm_type_t type, std::size_t count) {
    Sources sources;
    for (int k = 0; k < most_sources; ++k) sources.push_back(random_elements(random, type, count));
    return sources;
}

// The result of the first n sources over the old contents `old`.
std::vector<char> expected(const Sum &sum, const Sources &sources, int n, std::size_t count,
                           const std::vector<char> &old) {
    std::vector<char> to(count * size_of(sum.to_type));
    for (std::size_t i = 0; i < count; ++i) {
        float x = load(sources[0].data(), sum.type, i);
        if (sum.accumulate) x = load(old.data(), sum.to_type, i) + x;
        for (int k = 1; k < n; ++k) x += load(sources[k].data(), sum.type, i);
        store(to.data(), sum.to_type, i, x * sum.scale);
    }
    return to;
}

std::vector<const void *> pointers(const Sources &sources) {
    std::vector<const void *> result;
    for (const auto &source : sources) result.push_back(source.data());
    return result;
}

class ReductionsOf : public KernelsOf {
protected:
    // Runs with every array at another distance from a vector boundary.
    void expect_sum(const Sum &sum, const Sources &sources, int n, std::size_t count,
                    const std::vector<char> &old, const std::vector<char> &want,
                    std::size_t shift) {
        std::vector<Guarded> from;
        std::vector<const void *> addresses;
        for (int k = 0; k < n; ++k) {
            from.emplace_back(count * size_of(sum.type),
                              (shift + 5 * k) % most_shift * size_of(sum.type));
            std::copy_n(sources[k].data(), count * size_of(sum.type), from.back().data());
        }
        for (Guarded &source : from) addresses.push_back(source.data());
        const std::size_t bytes = count * size_of(sum.to_type);
        Guarded to(bytes, shift % most_shift * size_of(sum.to_type));
        std::copy_n(old.data(), bytes, to.data());

        kernel.reduce(addresses.data(), n, sum.type, to.data(), sum.to_type, count, sum.accumulate,
                      sum.scale);
        ASSERT_TRUE(std::equal(to.data(), to.data() + bytes, want.data()));
        ASSERT_TRUE(to.dry());
    }
};

INSTANTIATE_TEST_SUITE_P(Each, ReductionsOf, testing::ValuesIn(all_kernels()), test_name);

TEST_P(ReductionsOf, ReduceAnyNumberOfSourcesOfAnyCountAtAnyAlignment) {
    constexpr std::size_t most = 300;
    std::mt19937 random(4);
    for (const Sum &sum : sums) {
        const Sources sources = random_sources(random, sum.type, most);
        const std::vector<char> old = random_elements(random, sum.to_type, most);
        for (int n = 1; n <= most_sources; ++n) {
            const std::vector<char> want = expected(sum, sources, n, most, old);
            for (std::size_t count = 0; count <= most; ++count) {
                SCOPED_TRACE(testing::Message() << text(sum) << ", " << n << " sources, " << count);
                expect_sum(sum, sources, n, count, old, want, 7 * count + n);
                if (HasFatalFailure()) return;
            }
            for (std::size_t shift = 0; shift < most_shift; ++shift) {
                SCOPED_TRACE(testing::Message()
                             << text(sum) << ", " << n << " sources, shifted " << shift);
                expect_sum(sum, sources, n, 131, old, want, shift);
                if (HasFatalFailure()) return;
            }
        }
    }
}

TEST_P(ReductionsOf, ReduceMoreThanFitsATile) {
    std::mt19937 random(5);
    for (const std::size_t count : {2047, 2048, 2049, 4097, 60001}) {
        for (const Sum &sum : sums) {
            const Sources sources = random_sources(random, sum.type, count);
            const std::vector<char> old = random_elements(random, sum.to_type, count);
            for (const int n : {1, 2, 8, 9, 16, 17}) {
                SCOPED_TRACE(testing::Message() << text(sum) << ", " << n << " sources, " << count);
                expect_sum(sum, sources, n, count, old, expected(sum, sources, n, count, old), 3);
                if (HasFatalFailure()) return;
            }
        }
    }
}

TEST_P(ReductionsOf, ReduceSpecialValuesInEveryCombination) {
    constexpr std::size_t count = specials * specials * specials + 1;
    for (const Sum &sum : sums) {
        // Digit k of the index, in base `specials`, says what source k has.
        Sources sources(3, std::vector<char>(count * size_of(sum.type)));
        std::size_t place = 1;
        for (auto &source : sources) {
            for (std::size_t i = 0; i < count; ++i) {
                const std::uint32_t bits = special_bits[i / place % specials];
                const auto code = static_cast<std::uint16_t>(bits >> 16);
                if (sum.type == VESCOMM_F32) std::memcpy(&source[4 * i], &bits, 4);
                if (sum.type == VESCOMM_BF16) std::memcpy(&source[2 * i], &code, 2);
            }
            place *= specials;
        }
        const std::vector<char> old(count * size_of(sum.to_type));
        for (int n = 1; n <= 3; ++n) {
            SCOPED_TRACE(testing::Message() << text(sum) << ", " << n << " sources");
            expect_sum(sum, sources, n, count, old, expected(sum, sources, n, count, old), 1);
        }
    }
}

TEST_P(ReductionsOf, ReduceIntoAnyOneOfTheSources) {
    constexpr std::size_t count = 5003;
    std::mt19937 random(6);
    for (const Sum &sum : sums) {
        if (sum.type != sum.to_type) continue;
        const Sources sources = random_sources(random, sum.type, count);
        for (int n = 1; n <= most_sources; ++n) {
            for (int k = 0; k < n; ++k) {
                SCOPED_TRACE(testing::Message() << text(sum) << ", " << k << " of " << n);
                const auto want = expected(sum, sources, n, count, sources[k]);
                std::vector<char> to = sources[k];
                std::vector<const void *> addresses = pointers(sources);
                addresses[k] = to.data();
                kernel.reduce(addresses.data(), n, sum.type, to.data(), sum.to_type, count,
                              sum.accumulate, sum.scale);
                ASSERT_TRUE(to == want);
            }
        }
    }
}

TEST_P(ReductionsOf, ReduceTheSameInOneCallAsInSeveral) {
    constexpr std::size_t count = 7001;
    std::mt19937 random(7);
    for (const Sum &sum : sums) {
        const Sources sources = random_sources(random, sum.type, count);
        const std::vector<char> old = random_elements(random, sum.to_type, count);
        for (const int n : {1, 3, 8, 9, 17}) {
            std::vector<char> whole = old, pieces = old;
            const std::vector<const void *> addresses = pointers(sources);
            kernel.reduce(addresses.data(), n, sum.type, whole.data(), sum.to_type, count,
                          sum.accumulate, sum.scale);
            for (std::size_t first = 0; first < count;) {
                const std::size_t piece = std::min<std::size_t>(random() % 400, count - first);
                std::vector<const void *> moved;
                for (const auto &source : sources) {
                    moved.push_back(source.data() + first * size_of(sum.type));
                }
                kernel.reduce(moved.data(), n, sum.type,
                              pieces.data() + first * size_of(sum.to_type), sum.to_type, piece,
                              sum.accumulate, sum.scale);
                first += piece;
            }
            ASSERT_TRUE(whole == pieces) << text(sum) << ", " << n << " sources";
        }
    }
}

TEST_P(ReductionsOf, SumSquaresInTheDocumentedOrder) {
    std::mt19937 random(8);
    std::vector<std::size_t> counts(301);
    for (std::size_t i = 0; i < counts.size(); ++i) counts[i] = i;
    counts.push_back(100003);
    for (const vescomm_type_t type : {VESCOMM_F32, VESCOMM_BF16}) {
        for (const std::size_t count : counts) {
            Guarded from(count * size_of(type), count % most_shift * size_of(type));
            std::vector<double> lanes(64);
            long double exact = 0;
            for (std::size_t i = 0; i < count; ++i) {
                const float x = std::ldexp(static_cast<float>(random()) - 2e9f, -20 - i % 40);
                store(from.data(), type, i, x);
                const double stored = load(from.data(), type, i);
                lanes[i % 64] += stored * stored;
                exact += static_cast<long double>(stored) * stored;
            }
            for (int half = 32; half > 0; half /= 2) {
                for (int k = 0; k < half; ++k) lanes[k] += lanes[k + half];
            }
            const double result = kernel.sum_of_squares(from.data(), type, count);
            ASSERT_EQ(result, lanes[0]) << count;
            ASSERT_NEAR(result, static_cast<double>(exact), 1e-13 * static_cast<double>(exact));
        }
    }
}

TEST_P(ReductionsOf, SumSquaresOfAnInfinityOrNanToOne) {
    for (const std::size_t at : {0, 5, 63, 64, 200}) {
        std::vector<float> x(201, 1.0f);
        x[at] = -HUGE_VALF;
        EXPECT_EQ(kernel.sum_of_squares(x.data(), VESCOMM_F32, x.size()), HUGE_VAL);
        x[200 - at] = as_float(0xffc12345);
        EXPECT_EQ(
            std::bit_cast<std::uint64_t>(kernel.sum_of_squares(x.data(), VESCOMM_F32, x.size())),
            0x7ff8000000000000u);
    }
}

TEST(Kernels, AreTheFastestThatTheMachineSupports) {
    ASSERT_EQ(supported_kernels().size(), static_cast<std::size_t>(supported_isas()));
    EXPECT_EQ(&kernels(), &supported_kernels().back());
    for (std::size_t i = 0; i < supported_kernels().size(); ++i) {
        EXPECT_STREQ(supported_kernels()[i].isa, isa_names[i]);
    }
}

TEST(Kernels, ReduceF32AndBf16Only) {
    EXPECT_TRUE(can_reduce(VESCOMM_F32));
    EXPECT_TRUE(can_reduce(VESCOMM_BF16));
    EXPECT_FALSE(can_reduce(VESCOMM_F16));
    EXPECT_FALSE(can_reduce(VESCOMM_I32));
}

}  // namespace
}  // namespace vescomm
