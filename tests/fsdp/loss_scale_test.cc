// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The loss scale as a function of skipped steps, and f16 in the engine.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

using Scale = vescomm_fsdp_loss_scale_t;

Scale after(Scale scale, const std::string &steps) {
    for (const char step : steps) check(vescomm_fsdp_update_loss_scale(&scale, step == 's'));
    return scale;
}

TEST(LossScale, BacksOffAndGrowsWithinItsLimits) {
    Scale scale = vescomm_fsdp_loss_scale_init();
    scale.growth_interval = 3;
    scale.scale = 64;
    scale.min_scale = 16;
    scale.max_scale = 100;
    EXPECT_EQ(after(scale, "s").scale, 32);
    EXPECT_EQ(after(scale, "sss").scale, 16);
    EXPECT_EQ(after(scale, "..").scale, 64);
    EXPECT_EQ(after(scale, "...").scale, 100);
    EXPECT_EQ(after(scale, "..s..").scale, 32);
    EXPECT_EQ(after(scale, "..s...").scale, 64);
    EXPECT_EQ(after(scale, "..s...").good_steps, 0);
    scale.growth_interval = 0;
    EXPECT_EQ(after(scale, std::string(5000, '.')).scale, 64);
}

TEST(LossScale, RefusesValuesOutOfRangeWithoutAnEffect) {
    const auto refuse = [](auto &&change, const char *sentence) {
        Scale scale = vescomm_fsdp_loss_scale_init();
        change(scale);
        const Scale before = scale;
        EXPECT_EQ(vescomm_fsdp_update_loss_scale(&scale, 1), VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(std::string(vescomm_get_last_error()).find(sentence), std::string::npos)
            << vescomm_get_last_error();
        EXPECT_TRUE(scale.scale == before.scale || std::isnan(scale.scale));
    };
    refuse([](Scale &s) { s.scale = 0; }, "scale is 0");
    refuse([](Scale &s) { s.scale = std::numeric_limits<double>::quiet_NaN(); }, "scale is nan");
    refuse([](Scale &s) { s.scale = 1e30; }, "scale is 1e+30; it must be a number from 1 to");
    refuse([](Scale &s) { s.growth_factor = 0.5; }, "growth_factor is 0.5");
    refuse([](Scale &s) { s.backoff_factor = 2; }, "backoff_factor is 2");
    refuse([](Scale &s) { s.min_scale = 0; }, "min_scale is 0");
    refuse([](Scale &s) { s.max_scale = 1e200; }, "max_scale is 1e+200");
    refuse([](Scale &s) { s.growth_interval = -1; }, "growth_interval is -1");
    EXPECT_EQ(vescomm_fsdp_update_loss_scale(nullptr, 0), VESCOMM_ERROR_INVALID_ARGUMENT);
}

vescomm_fsdp_spec_options_t f16() {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.compute_type = VESCOMM_F16;
    return options;
}

// Gradients are small whole numbers, which f16 holds: the masters are those of f32.
TEST(F16, TrainsAsF32OnAnyNumberOfRanksAndNodes) {
    const std::vector<UnitModel> units = odd_model();
    Training training;
    training.max_norm = 20;
    const Outcome exact = train_on(1, units, "zero3", vescomm_fsdp_spec_options_init(), training);
    const std::vector<std::pair<const char *, int>> runs = {
        {"zero3", 1}, {"zero3", 2}, {"zero3", 3}, {"zero3", 5},
        {"zero3", 7}, {"zero1", 3}, {"ddp", 2}};
    for (const auto &[preset, ranks] : runs) {
        const Outcome half = train_on(ranks, units, preset, f16(), training);
        EXPECT_EQ(half.norms, exact.norms);
        ASSERT_EQ(half.parameters.size(), exact.parameters.size());
        for (std::size_t i = 0; i < half.parameters.size(); ++i)
            ASSERT_EQ(half.parameters[i], from_f16(to_f16(exact.parameters[i])));
    }
    for (const std::vector<int> &nodes :
         {std::vector<int>{0, 0, 1}, std::vector<int>{0, 1, 2, 0, 1}}) {
        const Outcome half =
            train_on(static_cast<int>(nodes.size()), units, "zero3", f16(), training, nodes);
        EXPECT_EQ(half.norms, exact.norms);
    }
}

// A gradient of one rank that f16 does not hold is infinite: the step is skipped on all ranks, and
// with half the scale it is not.
TEST(F16, AnOverflowOfOneRankSkipsTheStepAndHalvesTheScaleOnAllRanks) {
    for (const std::vector<int> &nodes : {std::vector<int>{}, std::vector<int>{0, 0, 1}})
        run_ranks(
            3,
            [&](Communicator &comm) {
                Described described =
                    describe({{"unit", {{.name = "w", .shape = {11, 3}}}}}, "zero3", f16());
                vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
                settings.learning_rate = 1;
                described.spec.add_group(described.ids[0], vescomm_optimizer_get_sgd(), &settings);
                Engine engine(described.spec, comm);
                Scale scale = vescomm_fsdp_loss_scale_init();
                for (int step = 0; step < 2; ++step) {
                    engine.begin(VESCOMM_FSDP_LAST);
                    engine.pre_forward(0);
                    engine.post_forward(0);
                    engine.pre_backward(0);
                    // 1.5 * 65536 is above the largest f16; 1.5 * 32768 is not.
                    std::vector<float> gradient(33, 0);
                    if (comm.rank() == 1) gradient[7] = static_cast<float>(1.5 * scale.scale);
                    engine.push_gradient(described.ids[0][0], gradient.data(), VESCOMM_F32);
                    engine.post_backward(0);
                    engine.finish_backward();
                    vescomm_fsdp_step_t arguments = vescomm_fsdp_step_init();
                    arguments.loss_scale = scale.scale;
                    const vescomm_fsdp_step_t done = engine.step(arguments);
                    EXPECT_EQ(done.skipped, step == 0 ? 1 : 0);
                    EXPECT_EQ(std::isfinite(done.norm), step == 1);
                    check(vescomm_fsdp_update_loss_scale(&scale, done.skipped));
                    EXPECT_EQ(scale.scale, 32768);
                }
                const std::vector<float> values = read_all(engine, described.ids);
                for (std::size_t i = 0; i < values.size(); ++i)
                    EXPECT_EQ(values[i], i == 7 ? -1.5f : 0.0f);
            },
            nodes);
}

}  // namespace
}  // namespace vescomm::fsdp::testing
