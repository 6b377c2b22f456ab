// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "execute/isa.h"
#include "fsdp/adamw.h"
#include "fsdp/optimizers/sgd.h"
#include "vescomm/optimizer.h"

namespace vescomm::fsdp {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

// Arrays of one run; every kind here has at most two states.
struct Arrays {
    std::vector<float> master, gradient, first, second;
    bool operator==(const Arrays &) const = default;
};

Arrays random_arrays(unsigned seed, std::size_t n) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    Arrays arrays;
    for (std::size_t i = 0; i < n; ++i) {
        arrays.master.push_back(normal(random));
        arrays.gradient.push_back(std::ldexp(normal(random), -static_cast<int>(random() % 30)));
        arrays.first.push_back(normal(random) * 0.1f);
        arrays.second.push_back(std::fabs(normal(random)) * 0.01f);
    }
    return arrays;
}

// One call of a kind's step on elements [begin, end).
int run_step(const vescomm_optimizer_kind_t &kind, const void *settings, Arrays &arrays,
             std::int64_t step, std::size_t begin, std::size_t end) {
    void *const states[] = {arrays.first.data() + begin, arrays.second.data() + begin};
    vescomm_optimizer_run_t run = {};
    run.struct_size = sizeof run;
    run.states = 2;
    run.elements = static_cast<std::int64_t>(end - begin);
    run.master = arrays.master.data() + begin;
    run.gradient = arrays.gradient.data() + begin;
    run.state = states;
    run.step = step;
    run.learning_rate_scale = 50;  // of 1e-3, the default: 0.05
    run.gradient_scale = 0.37f;
    return kind.step(kind.context, settings, &run);
}

vescomm_sgd_settings_t sgd_settings(double momentum, double dampening, double decay, bool nesterov,
                                    bool decoupled) {
    vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
    settings.momentum = momentum;
    settings.dampening = dampening;
    settings.weight_decay = decay;
    settings.nesterov = nesterov;
    settings.decoupled = decoupled;
    return settings;
}

const vescomm_sgd_settings_t all_sgd_settings[] = {
    sgd_settings(0, 0, 0, false, false),      sgd_settings(0, 0, 0.1, false, false),
    sgd_settings(0, 0, 0.1, false, true),     sgd_settings(0.9, 0, 0, false, false),
    sgd_settings(0.9, 0.3, 0.1, false, true), sgd_settings(0.9, 0.3, 0.1, false, false),
    sgd_settings(0.9, 0, 0.1, true, false),   sgd_settings(0.9, 0, 0.1, true, true),
};

// Returns the sentence about wrong settings, or an empty one.
template <typename Settings>
std::string reason_of(const vescomm_optimizer_kind_t &kind, const Settings &settings) {
    vescomm_optimizer_needs_t needs = vescomm_optimizer_needs_init();
    const char *reason = "";
    const int status = kind.needs(kind.context, &settings, &needs, &reason);
    EXPECT_EQ(status != 0, *reason != 0);
    return reason;
}

TEST(OptimizerKinds, SgdFollowsTheFormulaOfPyTorchInDoublePrecision) {
    constexpr double ulp = std::numeric_limits<float>::epsilon();
    for (const vescomm_sgd_settings_t &s : all_sgd_settings) {
        Arrays arrays = random_arrays(1, 1003);
        for (std::int64_t step = 1; step <= 3; ++step) {
            const Arrays old = arrays;
            ASSERT_EQ(run_step(*vescomm_optimizer_get_sgd(), &s, arrays, step, 0, 1003), 0);
            for (std::size_t i = 0; i < 1003; ++i) {
                const double p = old.master[i];
                double g = old.gradient[i] * double{0.37f};
                if (s.decoupled == 0) g += s.weight_decay * p;
                const double fresh = step == 1 ? 1 : 1 - s.dampening;
                const double m = s.momentum * old.first[i] + fresh * g;
                const double change = s.momentum == 0   ? g
                                      : s.nesterov != 0 ? g + s.momentum * m
                                                        : m;
                const double decay = s.decoupled != 0 ? 1 - 0.05 * s.weight_decay : 1;
                const double terms = std::fabs(p) + std::fabs(g) + std::fabs(old.first[i]);
                ASSERT_NEAR(arrays.master[i], p * decay - 0.05 * change, 4 * ulp * terms);
                if (s.momentum != 0) {
                    ASSERT_NEAR(arrays.first[i], m, 4 * ulp * terms);
                } else {
                    ASSERT_EQ(arrays.first[i], old.first[i]);
                }
                ASSERT_EQ(arrays.gradient[i], old.gradient[i]);
                ASSERT_EQ(arrays.second[i], old.second[i]);
            }
        }
    }
}

TEST(OptimizerKinds, SgdIsBitIdenticalForEveryInstructionSetAndNaN) {
    const float specials[] = {0.0f,
                              -0.0f,
                              1e-45f,
                              1.0f,
                              std::numeric_limits<float>::max(),
                              static_cast<float>(infinity),
                              static_cast<float>(-infinity),
                              std::bit_cast<float>(0xffc12345),
                              std::bit_cast<float>(0x7f812345)};
    Arrays start = random_arrays(2, 10007);
    for (const float p : specials) {
        for (const float g : specials) {
            for (const float m : specials) {
                start.master.push_back(p);
                start.gradient.push_back(g);
                start.first.push_back(m);
            }
        }
    }
    const SgdStep steps[] = {{0.37f, 0, 1, 0.9f, 1, 0.1f, false},
                             {0.37f, 0.1f, 0.9f, 0.9f, 0.7f, 0.1f, true}};
    const auto bits = [](const std::vector<float> &values) {
        std::vector<std::uint32_t> bits;
        for (const float x : values) bits.push_back(std::bit_cast<std::uint32_t>(x));
        return bits;
    };
    for (const SgdStep &step : steps) {
        for (const bool momentum : {false, true}) {
            Arrays want = start;
            const std::size_t n = start.master.size();
            sgd(want.master.data(), want.gradient.data(), momentum ? want.first.data() : nullptr, n,
                step, 0);
            for (int isa = 1; isa < internal::supported_isas(); ++isa) {
                Arrays got = start;
                sgd(got.master.data(), got.gradient.data(), momentum ? got.first.data() : nullptr,
                    n, step, isa);
                EXPECT_EQ(bits(got.master), bits(want.master)) << internal::isa_names[isa];
                EXPECT_EQ(bits(got.first), bits(want.first)) << internal::isa_names[isa];
            }
        }
    }
}

// Calls `check` with every kind and several settings of it.
void for_all_kinds(
    const std::function<void(const vescomm_optimizer_kind_t &, const void *)> &check) {
    const vescomm_adamw_settings_t adamw_settings = vescomm_adamw_settings_init();
    check(*vescomm_optimizer_get_adamw(), &adamw_settings);
    for (const auto &settings : all_sgd_settings) check(*vescomm_optimizer_get_sgd(), &settings);
}

TEST(OptimizerKinds, ResultDoesNotDependOnCuts) {
    for_all_kinds([](const vescomm_optimizer_kind_t &kind, const void *settings) {
        constexpr std::size_t n = 5003;
        std::mt19937 random(3);
        Arrays whole = random_arrays(4, n), pieces = whole;
        for (std::int64_t step = 1; step <= 3; ++step) {
            ASSERT_EQ(run_step(kind, settings, whole, step, 0, n), 0);
            for (std::size_t begin = 0; begin < n;) {
                const std::size_t end = std::min<std::size_t>(begin + random() % 100, n);
                ASSERT_EQ(run_step(kind, settings, pieces, step, begin, end), 0);
                begin = end;
            }
            EXPECT_TRUE(pieces == whole) << kind.name;
        }
    });
}

TEST(OptimizerKinds, AdamwKindMakesTheStepOfItsSettings) {
    vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
    settings.beta1 = 0.8;
    settings.epsilon = 1e-6;
    Arrays got = random_arrays(5, 333), want = got;
    ASSERT_EQ(run_step(*vescomm_optimizer_get_adamw(), &settings, got, 7, 0, 333), 0);
    adamw(want.master.data(), want.gradient.data(), want.first.data(), want.second.data(), 333,
          {0.05, 0.8, 0.999, 1e-6, 0.01, 0.37f, 7});
    EXPECT_TRUE(got == want);
}

TEST(OptimizerKinds, SayWhichMemberIsWrongWithItsValue) {
    const auto adamw = [](auto vescomm_adamw_settings_t::*member, auto value) {
        vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
        settings.*member = value;
        const std::string reason = reason_of(*vescomm_optimizer_get_adamw(), settings);
        EXPECT_EQ(reason_of(*vescomm_optimizer_get_adam8bit(), settings), reason);
        return reason;
    };
    using AdamW = vescomm_adamw_settings_t;
    EXPECT_EQ(adamw(&AdamW::learning_rate, -1e-3),
              "adamw: learning_rate is -0.001; it must be a finite number of at least 0");
    EXPECT_EQ(adamw(&AdamW::beta1, 1.0), "adamw: beta1 is 1; it must be in [0, 1)");
    EXPECT_EQ(adamw(&AdamW::beta2, -0.5), "adamw: beta2 is -0.5; it must be in [0, 1)");
    EXPECT_EQ(adamw(&AdamW::epsilon, infinity),
              "adamw: epsilon is inf; it must be a finite number of at least 0");
    EXPECT_EQ(adamw(&AdamW::weight_decay, nan),
              "adamw: weight_decay is nan; it must be a finite number of at least 0");
    EXPECT_EQ(adamw(&AdamW::reserved, 7u),
              "adamw: reserved is 7; it must be 0; use vescomm_adamw_settings_init()");
    const auto sgd = [](double momentum, double dampening, bool nesterov) {
        return reason_of(*vescomm_optimizer_get_sgd(),
                         sgd_settings(momentum, dampening, 0, nesterov, false));
    };
    EXPECT_EQ(sgd(-0.9, 0, false),
              "sgd: momentum is -0.9; it must be a finite number of at least 0");
    EXPECT_EQ(sgd(0.9, infinity, false), "sgd: dampening is inf; it must be a finite number");
    EXPECT_EQ(sgd(0, 0, true), "sgd: momentum is 0; it must be above 0 with nesterov");
    EXPECT_EQ(sgd(0.9, 0.5, true), "sgd: dampening is 0.5; it must be 0 with nesterov");
}

TEST(OptimizerKinds, MembersAfterAnOlderStructKeepTheirDefaults) {
    vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
    settings.struct_size = offsetof(vescomm_sgd_settings_t, momentum);
    settings.momentum = -1;  // not part of the older struct
    EXPECT_EQ(reason_of(*vescomm_optimizer_get_sgd(), settings), "");
}

TEST(OptimizerKinds, NeedsAreTheStatesThatTheSettingsUse) {
    vescomm_optimizer_needs_t needs = vescomm_optimizer_needs_init();
    const char *reason = nullptr;
    const vescomm_optimizer_kind_t &sgd_kind = *vescomm_optimizer_get_sgd();
    ASSERT_EQ(sgd_kind.needs(nullptr, &all_sgd_settings[0], &needs, &reason), 0);
    EXPECT_EQ(needs.state_count, 0u);
    ASSERT_EQ(sgd_kind.needs(nullptr, &all_sgd_settings[3], &needs, &reason), 0);
    EXPECT_EQ(needs.state_count, 1u);
    EXPECT_STREQ(needs.states[0].name, "momentum");
    const vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
    ASSERT_EQ(vescomm_optimizer_get_adamw()->needs(nullptr, &settings, &needs, &reason), 0);
    EXPECT_EQ(needs.state_count, 2u);
    EXPECT_EQ(needs.states[1].type, VESCOMM_F32);
}

TEST(OptimizerKinds, WrongSettingsAreNamed) {
    const auto adamw_reason = [](double vescomm_adamw_settings_t::*member, double value) {
        vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
        settings.*member = value;
        return reason_of(*vescomm_optimizer_get_adamw(), settings);
    };
    using Adamw = vescomm_adamw_settings_t;
    EXPECT_EQ(adamw_reason(&Adamw::beta1, 0), "");
    EXPECT_NE(adamw_reason(&Adamw::beta1, 1).find("beta1"), std::string::npos);
    EXPECT_NE(adamw_reason(&Adamw::beta2, -0.1).find("beta2"), std::string::npos);
    EXPECT_NE(adamw_reason(&Adamw::beta2, nan).find("beta2"), std::string::npos);
    EXPECT_NE(adamw_reason(&Adamw::epsilon, -1e-8).find("epsilon"), std::string::npos);
    EXPECT_NE(adamw_reason(&Adamw::learning_rate, infinity).find("learning_rate"),
              std::string::npos);
    EXPECT_NE(adamw_reason(&Adamw::weight_decay, nan).find("weight_decay"), std::string::npos);

    const vescomm_optimizer_kind_t &sgd_kind = *vescomm_optimizer_get_sgd();
    for (const auto &settings : all_sgd_settings) EXPECT_EQ(reason_of(sgd_kind, settings), "");
    const auto has = [&](const vescomm_sgd_settings_t &settings, const char *word) {
        return reason_of(sgd_kind, settings).find(word) != std::string::npos;
    };
    EXPECT_TRUE(has(sgd_settings(-1, 0, 0, false, false), "momentum"));
    EXPECT_TRUE(has(sgd_settings(0.9, nan, 0, false, false), "dampening"));
    EXPECT_TRUE(has(sgd_settings(0.9, 0, -1, false, true), "weight_decay"));
    EXPECT_TRUE(has(sgd_settings(0, 0, 0, true, false), "nesterov"));
    EXPECT_TRUE(has(sgd_settings(0.9, 0.1, 0, true, false), "nesterov"));
}

}  // namespace
}  // namespace vescomm::fsdp
