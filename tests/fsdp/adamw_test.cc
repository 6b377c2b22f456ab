// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/adamw.h"

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

// In the last entry the first moment is mostly the new gradient.
const AdamWStep settings[] = {
    {1e-3f, 0.9f, 0.999f, 1e-8f, 0.01f, 1.0f, 1},
    {3e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.37f, 1},
    {1e-2f, 0.8f, 0.99f, 1e-6f, 0.0f, 1.0f, 1000},
    {1e-2f, 0.3f, 0.9f, 1e-5f, 0.3f, 2.5f, 3},
};

struct State {
    std::vector<float> p, g, m, v;
};

State random_state(unsigned seed, std::size_t n) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    State state;
    for (std::size_t i = 0; i < n; ++i) {
        state.p.push_back(normal(random));
        state.g.push_back(normal(random) * std::ldexp(1.0f, -static_cast<int>(i % 20)));
        state.m.push_back(normal(random) * 0.1f);
        state.v.push_back(std::fabs(normal(random)) * 0.01f);
    }
    return state;
}

// Every combination of unusual values of p, g, m and v.
State special_state() {
    const std::uint32_t bits[] = {0x00000000, 0x80000000, 0x00000001, 0x3f800000, 0x7f7fffff,
                                  0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x7f812345};
    const std::size_t base = std::size(bits);
    State state;
    for (std::size_t i = 0; i < base * base * base * base; ++i) {
        state.p.push_back(std::bit_cast<float>(bits[i % base]));
        state.g.push_back(std::bit_cast<float>(bits[i / base % base]));
        state.m.push_back(std::bit_cast<float>(bits[i / base / base % base]));
        state.v.push_back(std::bit_cast<float>(bits[i / base / base / base]));
    }
    return state;
}

std::vector<std::uint32_t> bits_of(const State &state) {
    std::vector<std::uint32_t> bits;
    for (const auto *values : {&state.p, &state.g, &state.m, &state.v}) {
        for (const float x : *values) bits.push_back(std::bit_cast<std::uint32_t>(x));
    }
    return bits;
}

void update(State &state, const AdamWStep &step, int isa) {
    adamw(state.p.data(), state.g.data(), state.m.data(), state.v.data(), state.p.size(), step,
          isa);
}

// Copies elements [begin, end) to arrays that start `shift` elements later, updates them, and
// copies them back.
void update_piece(State &state, const AdamWStep &step, int isa, std::size_t begin, std::size_t end,
                  std::size_t shift) {
    const auto moved = [&](const std::vector<float> &from, std::size_t extra) {
        std::vector<float> to(shift + extra, -1.0f);
        to.insert(to.end(), from.begin() + begin, from.begin() + end);
        return to;
    };
    auto p = moved(state.p, 0), g = moved(state.g, 1), m = moved(state.m, 2), v = moved(state.v, 5);
    adamw(p.data() + shift, g.data() + shift + 1, m.data() + shift + 2, v.data() + shift + 5,
          end - begin, step, isa);
    std::copy(p.begin() + shift, p.end(), state.p.begin() + begin);
    std::copy(m.begin() + shift + 2, m.end(), state.m.begin() + begin);
    std::copy(v.begin() + shift + 5, v.end(), state.v.begin() + begin);
}

TEST(AdamW, FollowsTheFormulaInDoublePrecision) {
    constexpr std::size_t n = 1003;
    constexpr double ulp = std::numeric_limits<float>::epsilon();
    for (AdamWStep step : settings) {
        for (int isa = 0; isa < internal::supported_isas(); ++isa) {
            SCOPED_TRACE(internal::isa_names[isa]);
            State state = random_state(1, n);
            for (int repeat = 0; repeat < 5; ++repeat, ++step.step) {
                const State old = state;
                update(state, step, isa);
                const double c1 = 1 - std::pow(double{step.beta1}, static_cast<double>(step.step));
                const double c2 = 1 - std::pow(double{step.beta2}, static_cast<double>(step.step));
                for (std::size_t i = 0; i < n; ++i) {
                    const double g = double{old.g[i]} * step.gradient_scale;
                    const double m = old.m[i] + (1 - double{step.beta1}) * (g - old.m[i]);
                    const double v =
                        double{step.beta2} * old.v[i] + (1 - double{step.beta2}) * g * g;
                    const double change =
                        step.learning_rate / c1 * m / (std::sqrt(v) / std::sqrt(c2) + step.epsilon);
                    const double decay = 1 - double{step.learning_rate} * step.weight_decay;
                    const double p = old.p[i] * decay - change;
                    // m may cancel, so its error is relative to the terms.
                    const double m_terms = std::fabs(g) + std::fabs(old.m[i]);
                    const double change_terms = std::fabs(change) + std::fabs(change / m) * m_terms;
                    ASSERT_NEAR(state.m[i], m, 2 * ulp * m_terms);
                    ASSERT_NEAR(state.v[i], v, 3 * ulp * v);
                    // p is rounded three times by half an ulp: the factor, the product, the sum.
                    ASSERT_NEAR(state.p[i], p,
                                ulp * (1.5 * std::fabs(old.p[i]) + 8 * change_terms));
                    ASSERT_EQ(state.g[i], old.g[i]);
                }
            }
        }
    }
}

TEST(AdamW, ResultIsBitIdenticalForEveryInstructionSet) {
    for (const AdamWStep &step : settings) {
        for (const State &start : {random_state(2, 100003), special_state()}) {
            State baseline = start;
            update(baseline, step, 0);
            const auto want = bits_of(baseline);
            for (int isa = 1; isa < internal::supported_isas(); ++isa) {
                State state = start;
                update(state, step, isa);
                EXPECT_TRUE(bits_of(state) == want) << internal::isa_names[isa];
            }
            State state = start;
            adamw(state.p.data(), state.g.data(), state.m.data(), state.v.data(), state.p.size(),
                  step);
            EXPECT_TRUE(bits_of(state) == want) << "chosen by the library";
        }
    }
}

TEST(AdamW, ResultDoesNotDependOnCuts) {
    std::mt19937 random(3);
    for (const AdamWStep &step : settings) {
        for (int isa = 0; isa < internal::supported_isas(); ++isa) {
            SCOPED_TRACE(internal::isa_names[isa]);
            for (const State &start : {random_state(4, 20011), special_state()}) {
                State whole = start, pieces = start;
                update(whole, step, isa);
                const std::size_t n = start.p.size();
                for (std::size_t begin = 0; begin < n;) {
                    const std::size_t end = std::min<std::size_t>(begin + random() % 300, n);
                    update_piece(pieces, step, isa, begin, end, random() % 17);
                    begin = end;
                }
                EXPECT_TRUE(bits_of(pieces) == bits_of(whole));
            }
        }
    }
}

TEST(AdamW, ResultDoesNotDependOnCountAndAlignment) {
    const State start = random_state(5, 300);
    for (int isa = 0; isa < internal::supported_isas(); ++isa) {
        State whole = start;
        update(whole, settings[1], isa);
        for (std::size_t n = 0; n <= 300; ++n) {
            State state = start;
            update_piece(state, settings[1], isa, 0, n, n % 17);
            for (std::size_t i = 0; i < 300; ++i) {
                const State &want = i < n ? whole : start;
                ASSERT_EQ(state.p[i], want.p[i])
                    << internal::isa_names[isa] << ", " << i << " of " << n;
                ASSERT_EQ(state.m[i], want.m[i])
                    << internal::isa_names[isa] << ", " << i << " of " << n;
                ASSERT_EQ(state.v[i], want.v[i])
                    << internal::isa_names[isa] << ", " << i << " of " << n;
            }
        }
    }
}

TEST(AdamW, MovesByTheLearningRateInTheFirstStep) {
    std::vector<float> p{1, 1, 1}, g{0.5f, -2e-3f, 0}, m(3), v(3);
    adamw(p.data(), g.data(), m.data(), v.data(), 3, {1e-2f, 0.9f, 0.999f, 1e-8f, 0, 1, 1});
    EXPECT_NEAR(p[0], 0.99, 1e-6);
    EXPECT_NEAR(p[1], 1.01, 1e-6);
    EXPECT_EQ(p[2], 1.0f);
}

}  // namespace
}  // namespace vescomm::fsdp
