// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/quantise/block_quantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "execute/isa.h"
#include "execute/kernels.h"

namespace vescomm::fsdp {
namespace {

constexpr CodeType code_types[] = {CodeType::int8, CodeType::f8e4m3};
constexpr std::size_t block_sizes[] = {1, 2, 3, 7, 31, 32, 33, 64, 128, 256, 1000, 5000};
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

struct Quantised {
    std::vector<std::uint8_t> codes;
    std::vector<float> scales;
};

std::vector<std::uint32_t> bits_of(const std::vector<float> &values) {
    std::vector<std::uint32_t> bits;
    for (const float x : values) bits.push_back(std::bit_cast<std::uint32_t>(x));
    return bits;
}

// The arrays have guards at the end, which must stay unchanged.
Quantised quantise_all(const QuantiseLoops &loops, CodeType type, const std::vector<float> &values,
                       std::size_t block) {
    const std::size_t blocks = blocks_of(values.size(), block);
    Quantised result{std::vector<std::uint8_t>(values.size() + 1, 0xa5),
                     std::vector<float>(blocks + 1, 123.0f)};
    loops.quantise(type, values.data(), VESCOMM_F32, values.size(), block, result.codes.data(),
                   result.scales.data());
    EXPECT_EQ(result.codes.back(), 0xa5);
    EXPECT_EQ(result.scales.back(), 123.0f);
    result.codes.pop_back();
    result.scales.pop_back();
    return result;
}

std::vector<float> dequantise_all(const QuantiseLoops &loops, CodeType type, const Quantised &from,
                                  std::size_t block) {
    std::vector<float> values(from.codes.size() + 1, 123.0f);
    loops.dequantise(type, from.codes.data(), from.scales.data(), from.codes.size(), block,
                     values.data(), VESCOMM_F32);
    EXPECT_EQ(values.back(), 123.0f);
    values.pop_back();
    return values;
}

// Values of all magnitudes; neighbours are alike, so that blocks have one magnitude mostly.
std::vector<float> random_values(unsigned seed, std::size_t n) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values;
    int exponent = 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (random() % 50 == 0) exponent = static_cast<int>(random() % 274) - 149;
        const float x = std::ldexp(normal(random), exponent - static_cast<int>(random() % 8));
        values.push_back(std::isfinite(x) ? x : std::numeric_limits<float>::max());
    }
    return values;
}

double bound(CodeType type, double x, double max) {
    constexpr double rounding = 0x1p-21;
    const double error =
        type == CodeType::int8 ? max / 254 : std::max(std::fabs(x) / 16, max / 458752);
    return error + rounding * max + 0x1p-140;
}

double largest_magnitude(const std::vector<float> &values, std::size_t begin, std::size_t end) {
    double max = 0;
    for (std::size_t i = begin; i < end; ++i)
        max = std::max(max, std::fabs(static_cast<double>(values[i])));
    return max;
}

TEST(BlockQuantise, ErrorsAreWithinTheBoundsOfTheHeader) {
    for (const std::size_t n : {0, 1, 2, 3, 5, 7, 255, 256, 257, 4001}) {
        const std::vector<float> values = random_values(static_cast<unsigned>(n), n);
        for (const CodeType type : code_types) {
            for (const std::size_t block : block_sizes) {
                for (const QuantiseLoops &loops : supported_quantise_loops()) {
                    const Quantised codes = quantise_all(loops, type, values, block);
                    const std::vector<float> back = dequantise_all(loops, type, codes, block);
                    for (std::size_t begin = 0; begin < n; begin += block) {
                        const std::size_t end = std::min(begin + block, n);
                        const double max = largest_magnitude(values, begin, end);
                        for (std::size_t i = begin; i < end; ++i)
                            ASSERT_NEAR(back[i], values[i], bound(type, values[i], max))
                                << "element " << i << ", block " << block;
                    }
                }
            }
        }
    }
}

// Each representable value of a block whose scale is a power of two comes back unchanged.
TEST(BlockQuantise, RepresentableValuesComeBackExactly) {
    for (const float scale : {1.0f, 0x1p-20f, 0x1p-130f, 0x1p100f}) {
        std::vector<float> integers, floats;
        for (int code = -127; code <= 127; ++code) integers.push_back(scale * code);
        for (int code = 0; code < 256; ++code) {
            if ((code & 0x7f) == 0x7f) continue;  // NaN
            const int exponent = code >> 3 & 15, fraction = code & 7;
            const float magnitude = exponent == 0 ? std::ldexp(fraction, -9)
                                                  : std::ldexp(8.0f + fraction, exponent - 10);
            floats.push_back(scale * (code < 128 ? magnitude : -magnitude));
        }
        for (const QuantiseLoops &loops : supported_quantise_loops()) {
            const auto again = [&](CodeType type, const std::vector<float> &values) {
                return dequantise_all(loops, type, quantise_all(loops, type, values, 256), 256);
            };
            EXPECT_EQ(again(CodeType::int8, integers), integers);
            EXPECT_EQ(again(CodeType::f8e4m3, floats), floats);
        }
    }
}

TEST(BlockQuantise, Int8RoundsToNearestEven) {
    const std::vector<float> values{127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.75f, -126.5f};
    const std::vector<std::int8_t> want{127, 0, 2, 2, 0, -2, 1, -126};
    for (const QuantiseLoops &loops : supported_quantise_loops()) {
        const Quantised result = quantise_all(loops, CodeType::int8, values, 8);
        EXPECT_EQ(std::memcmp(result.codes.data(), want.data(), want.size()), 0);
        EXPECT_EQ(result.scales, std::vector<float>{1.0f});
    }
}

TEST(BlockQuantise, CodesAreBitIdenticalForEveryInstructionSetAndForCutsAtBlocks) {
    std::vector<float> values = random_values(3, 10007);
    values[100] = nan;
    values[5000] = -infinity;
    std::mt19937 random(4);
    for (const CodeType type : code_types) {
        for (const std::size_t block : block_sizes) {
            const QuantiseLoops &first = supported_quantise_loops().front();
            const Quantised want = quantise_all(first, type, values, block);
            const std::vector<float> want_back = dequantise_all(first, type, want, block);
            for (const QuantiseLoops &loops : supported_quantise_loops()) {
                Quantised got;
                for (std::size_t begin = 0; begin < values.size();) {
                    const std::size_t end =
                        std::min(begin + block * (random() % 40 + 1), values.size());
                    const Quantised piece = quantise_all(
                        loops, type, {values.begin() + begin, values.begin() + end}, block);
                    got.codes.insert(got.codes.end(), piece.codes.begin(), piece.codes.end());
                    got.scales.insert(got.scales.end(), piece.scales.begin(), piece.scales.end());
                    begin = end;
                }
                ASSERT_EQ(got.codes, want.codes);
                ASSERT_EQ(bits_of(got.scales), bits_of(want.scales));
                ASSERT_EQ(bits_of(dequantise_all(loops, type, got, block)), bits_of(want_back));
            }
        }
    }
}

TEST(BlockQuantise, ZerosComeBackAndBlocksThatAreNotFiniteComeBackAsNaN) {
    for (const float bad : {nan, -nan, infinity, -infinity}) {
        for (const std::size_t block : block_sizes) {
            std::vector<float> values(3 * block + 1, 1.0f);
            std::fill_n(values.begin(), block, -0.0f);
            values[2 * block - 1] = bad;
            for (const CodeType type : code_types) {
                for (const QuantiseLoops &loops : supported_quantise_loops()) {
                    const Quantised codes = quantise_all(loops, type, values, block);
                    EXPECT_EQ(codes.scales[0], 0.0f);
                    EXPECT_TRUE(std::isnan(codes.scales[1]));
                    const std::vector<float> back = dequantise_all(loops, type, codes, block);
                    for (std::size_t i = 0; i < values.size(); ++i) {
                        if (i / block == 0) {
                            ASSERT_EQ(back[i], 0.0f);
                        } else if (i / block == 1) {
                            ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i]), 0x7fc00000u);
                        } else {
                            ASSERT_NEAR(back[i], 1.0f, 1e-6f);
                        }
                    }
                }
            }
        }
    }
}

TEST(BlockQuantise, LargestAndSmallestMagnitudesStayFinite) {
    const float extremes[] = {std::numeric_limits<float>::max(), 0x1p-149f, 0x1.8p-140f,
                              std::numeric_limits<float>::min(), 0x1p-64f,  0x1.fffffep-65f};
    for (const float x : extremes) {
        const std::vector<float> values{x, -x, x / 2, 0};
        for (const CodeType type : code_types) {
            for (const QuantiseLoops &loops : supported_quantise_loops()) {
                const Quantised codes = quantise_all(loops, type, values, 4);
                const std::vector<float> back = dequantise_all(loops, type, codes, 4);
                for (std::size_t i = 0; i < 4; ++i)
                    EXPECT_NEAR(back[i], values[i], bound(type, values[i], x)) << x;
            }
        }
    }
}

TEST(BlockQuantise, SixteenBitTypesGiveTheCodesOfTheirValues) {
    const std::vector<float> start = random_values(5, 3001);
    for (const vescomm_type_t type : {VESCOMM_BF16, VESCOMM_F16}) {
        std::vector<std::uint16_t> narrow(start.size()), back(start.size()),
            want_back(start.size());
        std::vector<float> wide(start.size());
        const internal::Kernels &kernels = internal::kernels();
        kernels.convert(narrow.data(), type, start.data(), VESCOMM_F32, start.size());
        kernels.convert(wide.data(), VESCOMM_F32, narrow.data(), type, start.size());
        for (const CodeType code_type : code_types) {
            for (const QuantiseLoops &loops : supported_quantise_loops()) {
                const Quantised want = quantise_all(loops, code_type, wide, 64);
                Quantised got = want;
                std::fill(got.codes.begin(), got.codes.end(), 1);
                loops.quantise(code_type, narrow.data(), type, narrow.size(), 64, got.codes.data(),
                               got.scales.data());
                EXPECT_EQ(got.codes, want.codes);
                EXPECT_EQ(bits_of(got.scales), bits_of(want.scales));
                const std::vector<float> values = dequantise_all(loops, code_type, want, 64);
                kernels.convert(want_back.data(), type, values.data(), VESCOMM_F32, values.size());
                loops.dequantise(code_type, got.codes.data(), got.scales.data(), got.codes.size(),
                                 64, back.data(), type);
                EXPECT_EQ(back, want_back);
            }
        }
    }
}

TEST(BlockQuantise, SumsAddContributionsInOrderInSinglePrecision) {
    constexpr std::size_t n = 5003;
    for (const CodeType type : code_types) {
        for (const std::size_t ranks : {1, 2, 3, 5, 7}) {
            for (const std::size_t block : block_sizes) {
                const QuantiseLoops &first = supported_quantise_loops().front();
                std::vector<Quantised> contributions;
                std::vector<float> want;
                for (std::size_t rank = 0; rank < ranks; ++rank) {
                    auto values = random_values(static_cast<unsigned>(rank), n);
                    values[rank * 700] = rank % 2 == 0 ? nan : 0.0f;
                    contributions.push_back(quantise_all(first, type, values, block));
                    const auto back = dequantise_all(first, type, contributions.back(), block);
                    want.resize(n);
                    for (std::size_t i = 0; i < n; ++i)
                        want[i] = rank == 0 ? back[i] : want[i] + back[i];
                }
                for (float &x : want) x = std::isnan(x) ? nan : x * 0.3f;
                std::vector<QuantisedSource> sources;
                for (const Quantised &each : contributions)
                    sources.push_back({each.codes.data(), each.scales.data()});
                for (const QuantiseLoops &loops : supported_quantise_loops()) {
                    std::vector<float> sum(n + 1, 123.0f);
                    loops.sum(type, sources.data(), sources.size(), n, block, 0.3f, sum.data());
                    ASSERT_EQ(sum.back(), 123.0f);
                    sum.pop_back();
                    ASSERT_EQ(bits_of(sum), bits_of(want)) << ranks << " ranks, block " << block;
                }
            }
        }
    }
}

TEST(BlockQuantise, AnyBytesAreValidCodesAndScales) {
    std::mt19937 random(6);
    Quantised bytes;
    for (int i = 0; i < 4096; ++i) bytes.codes.push_back(static_cast<std::uint8_t>(random()));
    for (int i = 0; i < 128; ++i)
        bytes.scales.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    for (const CodeType type : code_types) {
        const auto want = dequantise_all(supported_quantise_loops().front(), type, bytes, 32);
        for (const QuantiseLoops &loops : supported_quantise_loops())
            EXPECT_EQ(bits_of(dequantise_all(loops, type, bytes, 32)), bits_of(want));
    }
}

}  // namespace
}  // namespace vescomm::fsdp
