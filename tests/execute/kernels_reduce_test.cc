// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <complex>

#include "tests/execute/reduction_reference.h"

namespace vescomm::internal {
namespace {

using Addresses = std::vector<const void *>;

class ReductionsOf : public KernelsOf {
protected:
    void reduce(const Case &c, const Addresses &sources, const Addresses &partials, void *to,
                std::size_t count, bool streaming = false, const void *start = nullptr) {
        const Reduction how{.op = c.op,
                            .divisor = c.divisor(),
                            .factors = c.op == VESCOMM_PREMULTIPLIED_SUM ? factors : nullptr,
                            .start = c.started ? start : nullptr,
                            .streaming = streaming};
        kernel.reduce(how, sources, c.type, partials, to, c.to_type, count);
    }

    // Runs with every array at a different distance from a vector boundary.
    void expect_reduced(const Case &c, const Arrays &sources, const Arrays &partials,
                        std::size_t count, const std::vector<char> &start,
                        const std::vector<char> &want, std::size_t shift) {
        SCOPED_TRACE(testing::Message() << c.text() << ", " << count << " elements");
        std::vector<Guarded> copies;
        const auto addresses = [&](const Arrays &arrays, std::size_t n, vescomm_type_t type) {
            Addresses result;
            for (std::size_t k = 0; k < n; ++k) {
                copies.emplace_back(count * size_of(type),
                                    (shift + 5 * k) % max_shift * size_of(type));
                std::copy_n(arrays[k].data(), count * size_of(type), copies.back().data());
                result.push_back(copies.back().data());
            }
            return result;
        };
        const Addresses from = addresses(sources, c.sources, c.type);
        const Addresses sums = addresses(partials, c.partials, accumulator_of(c.type));
        const Addresses first = addresses({start}, c.started, accumulator_of(c.type));
        const std::size_t bytes = count * size_of(c.to_type);
        for (const bool streaming : {false, true}) {
            Guarded to(bytes, shift % max_shift * size_of(c.to_type));
            reduce(c, from, sums, to.data(), count, streaming, c.started ? first[0] : nullptr);
            if (std::equal(to.data(), to.data() + bytes, want.data()) && to.guards_intact())
                continue;
            const vescomm_type_t part = part_of(c.to_type);
            for (std::size_t i = 0; i < count * parts(c.to_type); ++i)
                ASSERT_EQ(bits_at(to.data(), part, i), bits_at(want.data(), part, i))
                    << (is_complex(c.to_type) ? "part " : "element ") << i;
            ASSERT_TRUE(to.guards_intact());
        }
    }
};

INSTANTIATE_TEST_SUITE_P(Each, ReductionsOf, testing::ValuesIn(all_kernels()), test_name);

// Calls `body` for every type, every operator of the type, and every type of the result.
template <typename Body>
void for_each_kind(Body body) {
    for (const vescomm_type_t type : all_types)
        for (const vescomm_op_t op : all_ops) {
            if (!can_combine(op, type)) continue;
            body(Case{op, type, type, 1});
            if (accumulator_of(type) != type) body(Case{op, type, accumulator_of(type), 1});
        }
}

TEST_P(ReductionsOf, CombineAnyNumberOfSourcesAndPartials) {
    constexpr std::size_t count = 203;
    std::mt19937_64 random(4);
    for_each_kind([&](Case c) {
        const Arrays sources = random_arrays(random, c.type, 20, count);
        const Arrays partials = random_arrays(random, accumulator_of(c.type), 20, count);
        const auto start = random_elements(random, accumulator_of(c.type), count);
        for (const std::size_t n : {0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 18, 20})
            for (const std::size_t m : {0, 1, 2, 9, 20})
                for (const bool started : {false, true}) {
                    if (n + m == 0 || HasFatalFailure()) continue;
                    c.sources = n;
                    c.partials = m;
                    c.started = started;
                    const auto want = expected(c, sources, partials, count, start);
                    expect_reduced(c, sources, partials, count, start, want, n + 3 * m);
                }
    });
}

TEST_P(ReductionsOf, ReduceAnyCountAtAnyAlignment) {
    constexpr std::size_t max = 150;
    std::mt19937_64 random(5);
    for_each_kind([&](Case c) {
        const Arrays sources = random_arrays(random, c.type, 9, max);
        const Arrays partials = random_arrays(random, accumulator_of(c.type), 1, max);
        const auto start = random_elements(random, accumulator_of(c.type), max);
        for (const std::size_t n : {2, 9}) {
            c.sources = n;
            c.partials = n == 9;
            const auto want = expected(c, sources, partials, max, start);
            for (std::size_t count = 0; count <= max && !HasFatalFailure(); ++count)
                expect_reduced(c, sources, partials, count, start, want, 7 * count + n);
            for (std::size_t shift = 0; shift < max_shift && !HasFatalFailure(); ++shift)
                expect_reduced(c, sources, partials, 131, start, want, shift);
        }
    });
}

TEST_P(ReductionsOf, ReduceMoreThanFitsATile) {
    constexpr std::size_t max = 8197;
    std::mt19937_64 random(6);
    for_each_kind([&](Case c) {
        const Arrays sources = random_arrays(random, c.type, 17, max);
        const Arrays partials = random_arrays(random, accumulator_of(c.type), 2, max);
        const auto start = random_elements(random, accumulator_of(c.type), max);
        for (const std::size_t n : {1, 17}) {
            c.sources = n;
            c.partials = n == 17 ? 2 : 0;
            c.started = n == 17;
            const auto want = expected(c, sources, partials, max, start);
            for (const std::size_t count : {511, 1025, 2047, 2049, 8197}) {
                if (HasFatalFailure()) return;
                expect_reduced(c, sources, partials, count, start, want, 3);
            }
        }
    });
}

TEST_P(ReductionsOf, ReduceSpecialValuesInEveryCombination) {
    for_each_kind([&](Case c) {
        const vescomm_type_t part = part_of(c.type);
        const std::vector<std::uint64_t> specials = special_bits(part);
        const std::size_t all = specials.size() * specials.size() * specials.size() + 1;
        const std::size_t count = (all + parts(c.type) - 1) / parts(c.type);
        // Digit k of the index, in base specials.size(), selects the value of source k.
        Arrays sources(3, std::vector<char>(count * size_of(c.type)));
        std::size_t place = 1;
        for (auto &source : sources) {
            for (std::size_t i = 0; i < count * parts(c.type); ++i)
                set_bits(source.data(), part, i, specials[i / place % specials.size()]);
            place *= specials.size();
        }
        const std::vector<char> start(count * size_of(accumulator_of(c.type)));
        for (c.sources = 1; c.sources <= 3 && !HasFatalFailure(); ++c.sources)
            expect_reduced(c, sources, {}, count, start, expected(c, sources, {}, count, start), 1);
    });
}

TEST_P(ReductionsOf, CombineEveryPairOf8Bits) {
    for_each_kind([&](Case c) {
        if (size_of(c.type) != 1) return;
        constexpr std::size_t count = 1 << 16;
        Arrays sources(2, std::vector<char>(count));
        for (std::size_t i = 0; i < count; ++i) {
            set_bits(sources[0].data(), c.type, i, i % 256);
            set_bits(sources[1].data(), c.type, i, i / 256);
        }
        c.sources = 2;
        const std::vector<char> start(count * size_of(accumulator_of(c.type)));
        expect_reduced(c, sources, {}, count, start, expected(c, sources, {}, count, start), 0);
    });
}

TEST_P(ReductionsOf, ReduceIntoAnyOneOfTheSourcesOrPartials) {
    constexpr std::size_t count = 2503;
    std::mt19937_64 random(7);
    for_each_kind([&](Case c) {
        const Arrays sources = random_arrays(random, c.type, 17, count);
        const Arrays partials = random_arrays(random, accumulator_of(c.type), 2, count);
        for (const std::size_t n : {1, 3, 9, 17})
            for (const std::size_t m : {0, 2})
                for (std::size_t k = 0; k < n + m; ++k) {
                    c.sources = n;
                    c.partials = m;
                    if ((k < n ? c.type : accumulator_of(c.type)) != c.to_type) continue;
                    Arrays from = sources, sums = partials;
                    std::vector<char> &to = k < n ? from[k] : sums[k - n];
                    const auto want = expected(c, from, sums, count, to);
                    Addresses from_addresses, sum_addresses;
                    for (std::size_t j = 0; j < n; ++j) from_addresses.push_back(from[j].data());
                    for (std::size_t j = 0; j < m; ++j) sum_addresses.push_back(sums[j].data());
                    reduce(c, from_addresses, sum_addresses, to.data(), count, k % 2 == 1);
                    ASSERT_TRUE(to == want) << c.text() << ", in place of " << k;
                }
    });
}

TEST_P(ReductionsOf, GiveTheSameBitsInOneCallAndInSeveral) {
    constexpr std::size_t count = 7001;
    std::mt19937_64 random(8);
    for_each_kind([&](Case c) {
        const Arrays sources = random_arrays(random, c.type, 9, count);
        for (const std::size_t n : {1, 3, 9}) {
            c.sources = n;
            std::vector<char> whole(count * size_of(c.to_type)), pieces(whole);
            const auto run = [&](std::size_t first, std::size_t elements, std::vector<char> &to) {
                Addresses from;
                for (std::size_t k = 0; k < n; ++k)
                    from.push_back(sources[k].data() + first * size_of(c.type));
                reduce(c, from, {}, to.data() + first * size_of(c.to_type), elements);
            };
            run(0, count, whole);
            for (std::size_t first = 0; first < count;) {
                const std::size_t piece = std::min<std::size_t>(random() % 400, count - first);
                run(first, piece, pieces);
                first += piece;
            }
            ASSERT_TRUE(whole == pieces) << c.text();
        }
    });
}

// Results by hand, in case the reference has the same error as the kernels.
TEST_P(ReductionsOf, GiveKnownResults) {
    const auto combine_u32 = [this](vescomm_op_t op, vescomm_type_t type, std::uint32_t a,
                                    std::uint32_t b, int divisor = 1) {
        std::uint32_t to = 0;
        const Addresses from = {&a, &b};
        kernel.reduce({.op = op, .divisor = divisor}, from, type, {}, &to, type, 1);
        return to;
    };
    EXPECT_EQ(combine_u32(VESCOMM_SUM, VESCOMM_I8, 100, 100), 0xc8u);  // -56
    EXPECT_EQ(combine_u32(VESCOMM_AVERAGE, VESCOMM_I8, 100, 100, 2), 0xe4u);  // -56 / 2
    EXPECT_EQ(combine_u32(VESCOMM_AVERAGE, VESCOMM_I32, -4u, -3u, 2), -3u);  // towards zero
    EXPECT_EQ(combine_u32(VESCOMM_AVERAGE, VESCOMM_U32, ~0u, 0, 2), 0x7fffffffu);
    EXPECT_EQ(combine_u32(VESCOMM_PROD, VESCOMM_U16, 0xffff, 0xffff), 1u);
    EXPECT_EQ(combine_u32(VESCOMM_MIN, VESCOMM_I8, 0x80, 0x7f), 0x80u);
    EXPECT_EQ(combine_u32(VESCOMM_MIN, VESCOMM_U8, 0x80, 0x7f), 0x7fu);
    EXPECT_EQ(combine_u32(VESCOMM_MIN, VESCOMM_F32, 0, 0x80000000), 0x80000000u);
    EXPECT_EQ(combine_u32(VESCOMM_MAX, VESCOMM_F32, 0x80000000, 0), 0u);
    EXPECT_EQ(combine_u32(VESCOMM_MAX, VESCOMM_F32, 0x7f800000, 0xffc00001), 0x7fc00000u);
    EXPECT_EQ(combine_u32(VESCOMM_MIN, VESCOMM_BF16, 0x7f81, 0xff80), 0x7fc0u);
    EXPECT_EQ(combine_u32(VESCOMM_SUM, VESCOMM_F8E4M3, 0x7e, 0x7e), 0x7fu);  // 448 + 448
    EXPECT_EQ(combine_u32(VESCOMM_SUM, VESCOMM_F8E5M2, 0xfb, 0xfb), 0xfcu);  // -57344 twice
    EXPECT_EQ(combine_u32(VESCOMM_AVERAGE, VESCOMM_F8E4M3, 0x7e, 0x7e, 2), 0x7eu);  // in f32
    EXPECT_EQ(combine_u32(VESCOMM_BITWISE_AND, VESCOMM_I16, 0xff0f, 0x8ff0), 0x8f00u);
    EXPECT_EQ(combine_u32(VESCOMM_BITWISE_OR, VESCOMM_U32, 0xf0000000, 0x0f), 0xf000000fu);
    EXPECT_EQ(combine_u32(VESCOMM_BITWISE_XOR, VESCOMM_U8, 0xff, 0x0f), 0xf0u);
    EXPECT_EQ(combine_u32(VESCOMM_LOGICAL_AND, VESCOMM_I32, 0x100, 0x01), 1u);
    EXPECT_EQ(combine_u32(VESCOMM_LOGICAL_AND, VESCOMM_U32, 0x100, 0), 0u);
    EXPECT_EQ(combine_u32(VESCOMM_LOGICAL_OR, VESCOMM_I16, 0x8000, 0), 1u);
    EXPECT_EQ(combine_u32(VESCOMM_LOGICAL_XOR, VESCOMM_U16, 0x0200, 0x0001), 0u);
    EXPECT_EQ(combine_u32(VESCOMM_LOGICAL_XOR, VESCOMM_I8, 0x80, 0), 1u);
    for (const vescomm_op_t op : {VESCOMM_SUM, VESCOMM_MAX, VESCOMM_BITWISE_OR, VESCOMM_LOGICAL_OR})
        EXPECT_EQ(combine_u32(op, VESCOMM_BOOL, 0x02, 0x04), 1u);
    for (const vescomm_op_t op :
         {VESCOMM_PROD, VESCOMM_MIN, VESCOMM_BITWISE_AND, VESCOMM_LOGICAL_AND})
        EXPECT_EQ(combine_u32(op, VESCOMM_BOOL, 0x02, 0x04), 1u);
    EXPECT_EQ(combine_u32(VESCOMM_SUM, VESCOMM_BOOL, 0x80, 0x80), 1u);
    EXPECT_EQ(combine_u32(VESCOMM_BITWISE_XOR, VESCOMM_BOOL, 0x02, 0x04), 0u);
}

TEST_P(ReductionsOf, GiveKnownComplexResults) {
    using Complex = std::complex<float>;
    const Complex a{1, 2}, b{3, 4};
    const double by[] = {2, -1};
    const auto combine_two = [&](vescomm_op_t op, int divisor = 1) {
        Complex to;
        const Addresses from = {&a, &b};
        kernel.reduce({.op = op,
                       .divisor = divisor,
                       .factors = op == VESCOMM_PREMULTIPLIED_SUM ? by : nullptr},
                      from, VESCOMM_C64, {}, &to, VESCOMM_C64, 1);
        return to;
    };
    EXPECT_EQ(combine_two(VESCOMM_SUM), Complex(4, 6));
    EXPECT_EQ(combine_two(VESCOMM_AVERAGE, 2), Complex(2, 3));
    EXPECT_EQ(combine_two(VESCOMM_PROD), Complex(-5, 10));
    EXPECT_EQ(combine_two(VESCOMM_PREMULTIPLIED_SUM), Complex(-1, 0));
}

// A single contribution, as on a communicator of one rank.
TEST_P(ReductionsOf, ASingleContributionBecomesATruthValue) {
    const std::uint8_t from[] = {0, 1, 2, 128, 255};
    std::uint8_t to[5] = {};
    const Addresses one = {from};
    for (const vescomm_type_t type : {VESCOMM_BOOL, VESCOMM_U8}) {
        for (const vescomm_op_t op : all_ops) {
            if (!can_combine(op, type) || (type == VESCOMM_U8 && !is_logical(op))) continue;
            kernel.reduce({.op = op}, one, type, {}, to, type, 5);
            EXPECT_TRUE(std::ranges::equal(to, std::array{0, 1, 1, 1, 1})) << name_of_op(op);
        }
    }
}

}  // namespace
}  // namespace vescomm::internal
