// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Compares the kernels of every supported instruction set with libm in double precision. This file
// tests accuracy and edge cases; gpt_test.cc tests the meaning of the kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "execute/isa.h"
#include "fsdp/examples/train_gpt/kernels.h"

namespace train_gpt {

namespace {

// Counts around the number of lanes of every instruction set, and around twice that number.
const std::size_t counts[] = {0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 65, 100};

constexpr float guard = 12345.f;

template <typename Body>
void for_each_kernel_set(const Body &body) {
    for (std::size_t isa = 0; isa < supported_kernels().size(); ++isa) {
        SCOPED_TRACE(vescomm::internal::isa_names[isa]);
        body(*supported_kernels()[isa]);
    }
}

std::vector<float> random_values(std::size_t count, float deviation) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> values(count);
    for (float &value : values) value = normal(random);
    return values;
}

bfloat16 rounded(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<bfloat16>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float widened(bfloat16 value) {
    return std::bit_cast<float>(std::uint32_t{static_cast<std::uint16_t>(value)} << 16);
}

double gelu(double x) {
    return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

TEST(GptKernels, GeluIsAccurateForAnyCountAndStaysInBounds) {
    for_each_kernel_set([](const KernelSet &set) {
        for (const std::size_t count : counts) {
            const std::vector<float> x = random_values(count, 3);
            std::vector<float> y(count + 1, guard);
            set.f32.gelu(count, x.data(), y.data());
            for (std::size_t i = 0; i < count; ++i) {
                const double expected = gelu(x[i]);
                // Below 0 gelu is about x e^-2z, and the rounding error of z in f32 grows with z.
                const double error = 5e-7 * (1 + x[i] * x[i]);
                EXPECT_NEAR(y[i], expected, error * std::abs(expected) + 1e-37) << x[i];
            }
            EXPECT_EQ(y[count], guard);
        }
    });
}

TEST(GptKernels, GeluGradientIsTheSlopeOfGelu) {
    for_each_kernel_set([](const KernelSet &set) {
        for (const std::size_t count : counts) {
            const std::vector<float> x = random_values(count, 3);
            std::vector<float> dx(count + 1, 2);
            std::vector<float> y(count + 1, guard);
            dx[count] = guard;
            set.f32.gelu_backward(count, x.data(), dx.data(), dx.data(), y.data());
            for (std::size_t i = 0; i < count; ++i) {
                const double h = 1e-5;
                const double slope = (gelu(x[i] + h) - gelu(x[i] - h)) / (2 * h);
                EXPECT_NEAR(dx[i], 2 * slope, 2e-6) << x[i];
            }
            EXPECT_EQ(dx[count], guard);
            EXPECT_EQ(y[count], guard);
        }
    });
}

TEST(GptKernels, GeluOfBf16PairsIsTheRoundedGelu) {
    for_each_kernel_set([](const KernelSet &set) {
        for (const std::size_t count : counts) {
            std::vector<bfloat16> x(count);
            std::ranges::transform(random_values(count, 3), x.begin(), rounded);
            std::vector<bfloat16> y(count + 1, rounded(guard));
            set.bf16.gelu(count, x.data(), y.data());
            for (std::size_t i = 0; i < count; ++i) {
                const double expected = gelu(widened(x[i]));
                EXPECT_NEAR(widened(y[i]), expected, std::abs(expected) / 255 + 1e-37);
            }
            EXPECT_EQ(y[count], rounded(guard));
        }
    });
}

TEST(GptKernels, RoundingToBf16IsToNearestEvenAndKeepsNotANumber) {
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> values = random_values(100, 1e3f);
    values.insert(values.end(), {0.f, -0.f, infinity, -infinity, std::bit_cast<float>(0x3f808000),
                                 std::bit_cast<float>(0x3f818000), nan, -nan});
    for_each_kernel_set([&](const KernelSet &set) {
        std::vector<bfloat16> out(values.size());
        set.bf16.write(values.size(), values.data(), out.data(), false);
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (std::isnan(values[i])) {
                EXPECT_TRUE(std::isnan(widened(out[i])));
            } else {
                EXPECT_EQ(out[i], rounded(values[i])) << values[i];
            }
        }
    });
}

#if defined(__FLT16_MAX__)
// Compares with the compiler's conversions, for every half and for the values between halves.
TEST(GptKernels, ConvertsEveryF16ExactlyAndRoundsToNearestEven) {
    std::vector<float16> halves(0x10000);
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<float16>(i);
    std::vector<float> widened(halves.size());
    for (std::size_t i = 0; i < halves.size(); ++i)
        widened[i] =
            static_cast<float>(std::bit_cast<_Float16>(static_cast<std::uint16_t>(halves[i])));
    std::vector<float> values = random_values(1000, 1e-5f);
    for (std::size_t i = 0; i < 0x7c00; ++i) {
        // The middle of two halves, and its neighbours. Behind the largest half is 65536.
        const float next = i + 1 < 0x7c00 ? widened[i + 1] : 65536.f;
        const float middle = (widened[i] + next) / 2;
        for (const float x : {middle, std::nextafter(middle, 0.f), std::nextafter(middle, 1e9f)}) {
            values.push_back(x);
            values.push_back(-x);
        }
    }
    values.insert(values.end(), widened.begin(), widened.end());
    values.insert(values.end(), {1e30f, -1e30f, 1e-40f, std::bit_cast<float>(0x7fffffff)});
    for_each_kernel_set([&](const KernelSet &set) {
        std::vector<float> read(halves.size());
        set.f16.read(halves.size(), halves.data(), read.data());
        for (std::size_t i = 0; i < halves.size(); ++i) {
            if (std::isnan(widened[i])) {
                EXPECT_TRUE(std::isnan(read[i])) << i;
            } else {
                EXPECT_EQ(std::bit_cast<std::uint32_t>(read[i]),
                          std::bit_cast<std::uint32_t>(widened[i]))
                    << i;
            }
        }
        std::vector<float16> out(values.size());
        set.f16.write(values.size(), values.data(), out.data(), false);
        for (std::size_t i = 0; i < values.size(); ++i) {
            const auto half = std::bit_cast<_Float16>(static_cast<std::uint16_t>(out[i]));
            if (std::isnan(values[i])) {
                EXPECT_TRUE(std::isnan(static_cast<float>(half)));
            } else {
                EXPECT_EQ(out[i], static_cast<float16>(std::bit_cast<std::uint16_t>(
                                      static_cast<_Float16>(values[i]))))
                    << values[i];
            }
        }
    });
}

#endif

TEST(GptKernels, GeluOfF16PairsIsTheRoundedGelu) {
    for_each_kernel_set([](const KernelSet &set) {
        for (const std::size_t count : counts) {
            const std::vector<float> values = random_values(count, 3);
            std::vector<float16> x(count);
            set.f16.write(count, values.data(), x.data(), false);
            std::vector<float> widened(count + 1);
            set.f16.read(count, x.data(), widened.data());
            const std::vector<float> expected(widened);
            std::vector<float16> y(count + 1, float16{0x1234});
            set.f16.gelu(count, x.data(), y.data());
            set.f16.read(count, y.data(), widened.data());
            for (std::size_t i = 0; i < count; ++i) {
                const double g = gelu(expected[i]);
                EXPECT_NEAR(widened[i], g, std::abs(g) / 2040 + 0x1p-24);
            }
            EXPECT_EQ(y[count], float16{0x1234});
        }
    });
}

// Logits from tiny ones to those for which exp() over- and underflows in f32.
TEST(GptKernels, CrossEntropyIsAccurateForAnyRangeOfLogits) {
    for_each_kernel_set([](const KernelSet &set) {
        for (const float deviation : {1e-3f, 1.f, 30.f, 1000.f}) {
            for (const std::size_t columns : {5, 16, 256}) {
                const std::vector<float> logits = random_values(columns, deviation);
                const std::uint8_t target = 3;
                float log_sum = 0;
                const double loss =
                    set.f32.cross_entropy(1, columns, logits.data(), &target, &log_sum);

                const double largest = *std::ranges::max_element(logits);
                double sum = 0;
                for (const float logit : logits) sum += std::exp(logit - largest);
                const double expected = largest + std::log(sum) - logits[target];
                EXPECT_NEAR(loss, expected, 1e-6 * (1 + std::abs(expected) + std::abs(largest)));

                std::vector<float> gradient(columns + 1, guard);
                set.f32.cross_entropy_backward(1, columns, 0.5f, logits.data(), &target, &log_sum,
                                               gradient.data());
                for (std::size_t i = 0; i < columns; ++i) {
                    const double share = std::exp(logits[i] - largest) / sum;
                    // The error of log_sum is relative to its size.
                    EXPECT_NEAR(gradient[i], 0.5 * (share - (i == target)),
                                1e-6 + 1e-7 * std::abs(largest));
                }
                EXPECT_EQ(gradient[columns], guard);
            }
        }
    });
}

TEST(GptKernels, CausalSoftmaxUsesVisibleKeysOnlyAndSumsToOne) {
    for_each_kernel_set([](const KernelSet &set) {
        const std::size_t context = 37;
        const std::size_t first = 20;
        const std::size_t rows = 11;
        const std::size_t width = first + rows;
        const float scale = 0.3f;
        std::vector<float> scores = random_values(rows * context, 5);
        for (std::size_t row = 0; row < rows; ++row) {
            // The values above the diagonal are arbitrary.
            for (std::size_t key = first + row + 1; key < context; ++key) {
                scores[row * context + key] = key % 2 == 0 ? guard : NAN;
            }
        }
        std::vector<float> probabilities(rows * context, guard);
        std::vector<float> log_sum(rows);
        set.f32.causal_softmax(rows, first, width, context, scale, scores.data(),
                               probabilities.data(), log_sum.data());
        for (std::size_t row = 0; row < rows; ++row) {
            double sum = 0;
            for (std::size_t key = 0; key <= first + row; ++key) {
                sum += std::exp(static_cast<double>(scale) * scores[row * context + key]);
            }
            EXPECT_NEAR(log_sum[row], std::log(sum), 1e-5);
            for (std::size_t key = 0; key < context; ++key) {
                const float actual = probabilities[row * context + key];
                if (key <= first + row) {
                    const double power =
                        std::exp(static_cast<double>(scale) * scores[row * context + key]);
                    EXPECT_NEAR(actual, power / sum, 2e-6 * power / sum + 1e-30);
                } else {
                    EXPECT_EQ(actual, key < width ? 0.f : guard);
                }
            }
        }
    });
}

}  // namespace

}  // namespace train_gpt
