// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/optimizers/adam8bit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "execute/isa.h"

namespace vescomm::fsdp {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
const AdamWStep plain{1e-2, 0.9, 0.999, 1e-8, 0.1, 0.37f, 1};

struct State {
    explicit State(std::size_t n)
        : first(n),
          second(n),
          first_scale((n + adam8bit_block - 1) / adam8bit_block),
          second_scale(first_scale.size()) {}

    Adam8bitState at(std::size_t element) {
        const std::size_t block = element / adam8bit_block;
        return {first.data() + element, second.data() + element, first_scale.data() + block,
                second_scale.data() + block};
    }
    bool operator==(const State &) const = default;

    std::vector<std::uint8_t> first, second;
    std::vector<float> first_scale, second_scale;
};

std::vector<float> values_of_book(const Adam8bitLoops &loops, bool negatives) {
    std::vector<std::uint8_t> codes;
    for (int code = 0; code < 256; ++code) codes.push_back(static_cast<std::uint8_t>(code));
    std::vector<float> values(256);
    loops.decode(negatives, codes.data(), 1.0f, 256, values.data());
    return values;
}

std::vector<float> random_moments(std::mt19937 &random, bool negatives, std::size_t n) {
    std::uniform_real_distribution<float> exponent(-9, 0);
    std::vector<float> moments;
    for (std::size_t i = 0; i < n; ++i) {
        const float x = std::pow(10.0f, exponent(random));
        moments.push_back(negatives && random() % 2 == 0 ? -x : x);
    }
    return moments;
}

std::vector<float> gradients(unsigned seed, std::size_t n) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values;
    for (std::size_t i = 0; i < n; ++i)
        values.push_back(std::ldexp(normal(random), -static_cast<int>(random() % 12)));
    return values;
}

// Golden values of torch and bitsandbytes.
TEST(Adam8bit, CodeBooksAreThoseOfBitsandbytes) {
    for (const Adam8bitLoops &loops : supported_adam8bit_loops()) {
        const std::vector<float> first = values_of_book(loops, true);
        EXPECT_FLOAT_EQ(first[0], -0.99296874f);
        EXPECT_FLOAT_EQ(first[126], -5.5e-7f);
        EXPECT_EQ(first[127], 0.0f);
        EXPECT_FLOAT_EQ(first[128], 5.5e-7f);
        EXPECT_FLOAT_EQ(first[253], 0.97890627f);
        EXPECT_FLOAT_EQ(first[254], 0.99296874f);
        EXPECT_EQ(first[255], 1.0f);
        const std::vector<float> second = values_of_book(loops, false);
        EXPECT_EQ(second[0], 0.0f);
        EXPECT_FLOAT_EQ(second[1], 3.25e-7f);
        EXPECT_FLOAT_EQ(second[2], 7.75e-7f);
        EXPECT_FLOAT_EQ(second[3], 2.125e-6f);
        EXPECT_FLOAT_EQ(second[254], 0.9964844f);
        EXPECT_EQ(second[255], 1.0f);
        for (int code = 1; code < 256; ++code) {
            EXPECT_GT(first[code], first[code - 1]);
            EXPECT_GT(second[code], second[code - 1]);
        }
    }
}

TEST(Adam8bit, EncodeChoosesTheNearestValueOfTheCodeBook) {
    std::mt19937 random(1);
    for (const bool negatives : {true, false}) {
        const auto values = values_of_book(supported_adam8bit_loops().front(), negatives);
        for (const float scale : {1.0f, 0x1.8p-30f, 0x1.cp-100f, 0x1.4p90f}) {
            for (int repeat = 0; repeat < 50; ++repeat) {
                std::vector<float> moments = random_moments(random, negatives, adam8bit_block);
                moments[random() % adam8bit_block] = 0;
                moments[random() % adam8bit_block] = 1;
                for (float &x : moments) x *= scale;
                for (const Adam8bitLoops &loops : supported_adam8bit_loops()) {
                    std::uint8_t codes[adam8bit_block];
                    float got_scale = 0;
                    loops.encode(negatives, moments.data(), adam8bit_block, codes, &got_scale);
                    ASSERT_EQ(got_scale, scale);
                    for (std::size_t i = 0; i < adam8bit_block; ++i) {
                        const double x = static_cast<double>(moments[i]) / scale;
                        double best = 2;
                        for (const float value : values)
                            best = std::min(best, std::fabs(value - x));
                        if (!negatives && x > 0) best = std::max(best, std::fabs(values[1] - x));
                        // Nearest up to the rounding of f32.
                        ASSERT_LE(std::fabs(values[codes[i]] - x),
                                  best * (1 + 1e-4) + 1e-6 * std::fabs(x))
                            << x;
                        ASSERT_TRUE(negatives || (codes[i] == 0) == (x == 0)) << x;
                    }
                }
            }
        }
    }
}

TEST(Adam8bit, ValuesOfTheCodeBookKeepTheirCodes) {
    for (const Adam8bitLoops &loops : supported_adam8bit_loops()) {
        for (const bool negatives : {true, false}) {
            const std::vector<float> values = values_of_book(loops, negatives);
            std::uint8_t codes[adam8bit_block];
            float scale = 0;
            loops.encode(negatives, values.data(), adam8bit_block, codes, &scale);
            EXPECT_EQ(scale, 1.0f);
            for (int code = 0; code < 256; ++code) EXPECT_EQ(codes[code], code);
        }
    }
}

TEST(Adam8bit, StepIsThatOfAdamWOnDecodedMoments) {
    for (const std::size_t n : {1, 2, 3, 5, 7, 255, 256, 257, 1000}) {
        for (const Adam8bitLoops &loops : supported_adam8bit_loops()) {
            State state(n);
            std::vector<float> p = gradients(2, n);
            AdamWStep step = plain;
            for (; step.step <= 5; ++step.step) {
                const std::vector<float> g = gradients(10 + static_cast<unsigned>(step.step), n);
                State want_state = state;
                std::vector<float> want = p;
                for (std::size_t begin = 0; begin < n; begin += adam8bit_block) {
                    const std::size_t count = std::min(adam8bit_block, n - begin);
                    const Adam8bitState at = want_state.at(begin);
                    float first[adam8bit_block], second[adam8bit_block];
                    loops.decode(true, at.first, *at.first_scale, count, first);
                    loops.decode(false, at.second, *at.second_scale, count, second);
                    adamw(want.data() + begin, g.data() + begin, first, second, count, step);
                    loops.encode(true, first, count, at.first, at.first_scale);
                    loops.encode(false, second, count, at.second, at.second_scale);
                }
                loops.step(p.data(), g.data(), state.at(0), n, adamw_constants(step));
                ASSERT_EQ(p, want);
                ASSERT_TRUE(state == want_state);
            }
        }
    }
}

TEST(Adam8bit, ResultIsBitIdenticalForEveryInstructionSetAndForCutsAtBlocks) {
    constexpr std::size_t n = 10007;
    std::mt19937 random(3);
    State want_state(n);
    std::vector<float> want = gradients(4, n);
    std::vector<State> states(supported_adam8bit_loops().size(), want_state);
    std::vector<std::vector<float>> parameters(states.size(), want);
    AdamWStep step = plain;
    for (; step.step <= 4; ++step.step) {
        const std::vector<float> g = gradients(20 + static_cast<unsigned>(step.step), n);
        adam8bit(want.data(), g.data(), want_state.at(0), n, step);
        for (std::size_t isa = 0; isa < states.size(); ++isa) {
            for (std::size_t begin = 0; begin < n;) {
                const std::size_t end = std::min(begin + adam8bit_block * (1 + random() % 5), n);
                supported_adam8bit_loops()[isa].step(parameters[isa].data() + begin,
                                                     g.data() + begin, states[isa].at(begin),
                                                     end - begin, adamw_constants(step));
                begin = end;
            }
            ASSERT_EQ(parameters[isa], want) << internal::isa_names[isa];
            ASSERT_TRUE(states[isa] == want_state) << internal::isa_names[isa];
        }
    }
}

TEST(Adam8bit, BlockWithNaNBecomesNaNAndOthersDoNot) {
    for (const Adam8bitLoops &loops : supported_adam8bit_loops()) {
        State state(600);
        std::vector<float> p(600, 1.0f), g(600, 0.5f);
        g[300] = nan;
        AdamWStep step = plain;
        loops.step(p.data(), g.data(), state.at(0), 600, adamw_constants(step));
        EXPECT_TRUE(std::isnan(p[300]));
        EXPECT_FALSE(std::isnan(p[301]));
        g[300] = 0.5f;
        ++step.step;
        loops.step(p.data(), g.data(), state.at(0), 600, adamw_constants(step));
        for (std::size_t i = 0; i < 600; ++i) ASSERT_EQ(std::isnan(p[i]), i / 256 == 1) << i;
    }
}

TEST(Adam8bit, ZeroGradientsMoveNothing) {
    State state(300);
    std::vector<float> p(300, 1.5f);
    const std::vector<float> g(300);
    AdamWStep step{1e-2, 0.9, 0.999, 1e-8, 0, 1, 1};
    for (; step.step <= 3; ++step.step) adam8bit(p.data(), g.data(), state.at(0), 300, step);
    EXPECT_EQ(p, std::vector<float>(300, 1.5f));
    EXPECT_EQ(state.second_scale, std::vector<float>(2));
}

// Minimises sum of c[i] * (p[i] - 1)^2 / 2 with curvatures over three orders of magnitude.
TEST(Adam8bit, ConvergesLikeAdamWInSinglePrecision) {
    constexpr std::size_t n = 1000;
    const auto loss_after = [](bool eight_bits) {
        std::mt19937 random(5);
        std::normal_distribution<float> normal;
        std::vector<float> p(n), g(n), m(n), v(n);
        State state(n);
        AdamWStep step{0.05, 0.9, 0.99, 1e-8, 0, 1, 1};
        double loss = 0;
        for (; step.step <= 400; ++step.step) {
            step.learning_rate = 0.05 * (1 - static_cast<double>(step.step) / 401);
            loss = 0;
            for (std::size_t i = 0; i < n; ++i) {
                const float curvature = std::pow(10.0f, -3.0f * static_cast<float>(i) / n);
                g[i] = curvature * (p[i] - 1 + 0.1f * normal(random));
                loss += curvature * (p[i] - 1) * (p[i] - 1) / 2;
            }
            if (eight_bits) {
                adam8bit(p.data(), g.data(), state.at(0), n, step);
            } else {
                adamw(p.data(), g.data(), m.data(), v.data(), n, step);
            }
        }
        return loss;
    };
    const double start = 72.3;  // half of the sum of all curvatures
    const double single = loss_after(false);
    EXPECT_LT(single, start * 1e-2);
    EXPECT_LT(loss_after(true), single * 1.5 + start * 1e-4);
}

}  // namespace
}  // namespace vescomm::fsdp
