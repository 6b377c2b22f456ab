// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The step: factors that f32 does not hold, and settings after a reset.
#include <algorithm>
#include <cmath>
#include <limits>

#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

// One vector with SGD of learning rate 1, p -= g, which starts as zeros.
struct OneVector {
    explicit OneVector(double learning_rate = 1) {
        vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
        settings.learning_rate = learning_rate;
        group = spec.add_group(std::span(&id, 1), vescomm_optimizer_get_sgd(), &settings);
    }

    Spec spec;
    std::uint64_t id = spec.add_parameter(spec.add_unit("unit"), {.name = "w", .shape = {10}});
    std::uint64_t group = 0;
};

// Forward and backward; rank 0 contributes the whole gradient.
void run_passes(Engine &engine, const OneVector &model, int rank, float gradient) {
    engine.begin(VESCOMM_FSDP_LAST);
    engine.pre_forward(0);
    engine.post_forward(0);
    engine.pre_backward(0);
    const auto view = engine.gradient(model.id).first;
    for (std::int64_t i = 0; i < view.elements; ++i) write(view, i, rank == 0 ? gradient : 0);
    engine.post_backward(0);
    engine.finish_backward();
}

std::vector<float> values(Engine &engine, const OneVector &model) {
    return read_all(engine, {{model.id}});
}

struct Factors {
    double scale = 1;
    double loss_scale = 1;
    double max_norm = 0;
    float gradient = 1;
};

vescomm_fsdp_step_t step_with(Engine &engine, const Factors &factors) {
    engine.scale(factors.scale);
    vescomm_fsdp_step_t step = vescomm_fsdp_step_init();
    step.loss_scale = factors.loss_scale;
    step.max_norm = factors.max_norm;
    return engine.step(step);
}

TEST(Step, RefusesFactorsThatF32DoesNotHold) {
    const Factors all[] = {{.scale = 1e39},         {.scale = -1e39},
                           {.scale = 1e-40},        {.loss_scale = 1e-40},
                           {.loss_scale = 0x1p150}, {.scale = 1e30, .loss_scale = 1e-30}};
    for (const Factors &factors : all)
        run_ranks(2, [&](Communicator &comm) {
            const OneVector model;
            Engine engine(model.spec, comm);
            run_passes(engine, model, comm.rank(), 1);
            try {
                step_with(engine, factors);
                ADD_FAILURE() << "the step succeeded";
            } catch (const Error &error) {
                // The first rank aborts the waits of the others, with its sentence.
                EXPECT_TRUE(error.status() == VESCOMM_ERROR_INVALID_ARGUMENT ||
                            error.status() == VESCOMM_ERROR_ABORTED)
                    << error.what();
                EXPECT_NE(std::string(error.what()).find("f32 does not hold"), std::string::npos)
                    << error.what();
            }
            engine.reset();
            EXPECT_EQ(values(engine, model), std::vector<float>(10, 0.0f));
            run_passes(engine, model, comm.rank(), 1);
            EXPECT_EQ(engine.step().skipped, 0);
            EXPECT_EQ(values(engine, model), std::vector<float>(10, -1.0f));
        });
}

TEST(Step, RefusesAProductOfScalesThatIsInfinite) {
    run_ranks(1, [](Communicator &comm) {
        const OneVector model;
        Engine engine(model.spec, comm);
        run_passes(engine, model, 0, 1);
        engine.scale(1e300);
        EXPECT_THROW(engine.scale(1e300), Error);
    });
}

TEST(Step, IsSkippedIfAGradientBecomesInfinite) {
    const float huge = std::numeric_limits<float>::max();
    const Factors all[] = {{.scale = 1e38, .gradient = 1e5f},
                           {.loss_scale = 1e-30, .gradient = 1e10f},
                           {.scale = 3, .gradient = huge},
                           {.max_norm = 1e-6, .gradient = huge}};
    for (const Factors &factors : all)
        run_ranks(3, [&](Communicator &comm) {
            const OneVector model;
            Engine engine(model.spec, comm);
            run_passes(engine, model, comm.rank(), factors.gradient);
            const vescomm_fsdp_step_t step = step_with(engine, factors);
            EXPECT_EQ(step.skipped, 1);
            EXPECT_EQ(step.step, 0);
            EXPECT_EQ(engine.counters().skipped, 1u);
            EXPECT_EQ(values(engine, model), std::vector<float>(10, 0.0f));
        });
}

TEST(Step, IsNotSkippedAtTheLimitsOfF32) {
    const float huge = std::numeric_limits<float>::max();
    const Factors all[] = {{.scale = 0, .gradient = huge},
                           {.scale = 0x1p-126, .gradient = huge},
                           {.scale = 0x1p127, .gradient = 0x1p-126f},
                           {.loss_scale = 0x1p120, .gradient = 0x1p125f},
                           {.max_norm = 1e3, .gradient = huge}};
    for (const Factors &factors : all)
        run_ranks(2, [&](Communicator &comm) {
            const OneVector model;
            Engine engine(model.spec, comm);
            run_passes(engine, model, comm.rank(), factors.gradient);
            EXPECT_EQ(step_with(engine, factors).skipped, 0);
            const double factor = factors.scale / factors.loss_scale;
            const double expected = factors.max_norm > 0
                                        ? factors.max_norm / std::sqrt(10.0)
                                        : factor * static_cast<double>(factors.gradient);
            for (const float x : values(engine, model)) EXPECT_NEAR(x, -expected, 1e-5 * expected);
        });
}

// A rank that failed before it replaced the settings would train with others than the rest.
TEST(Step, SettingsAfterAResetAreThoseOfTheLastStepOnAllRanks) {
    run_ranks(3, [](Communicator &comm) {
        const OneVector model;
        Engine engine(model.spec, comm);
        vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
        const auto set = [&](double learning_rate) {
            settings.learning_rate = learning_rate;
            engine.set_group(model.group, &settings);
        };
        const auto step = [&] {
            run_passes(engine, model, comm.rank(), 1);
            engine.step();
        };
        if (comm.rank() != 1) set(8);
        comm.barrier();
        engine.reset();
        step();
        EXPECT_EQ(values(engine, model), std::vector<float>(10, -1.0f));
        set(2);
        step();
        EXPECT_EQ(values(engine, model), std::vector<float>(10, -3.0f));
        if (comm.rank() == 1) set(16);
        comm.barrier();
        engine.reset();
        step();
        EXPECT_EQ(values(engine, model), std::vector<float>(10, -5.0f));
    });
}

// Two views have the same generation if the parameters have not changed between them.
TEST(Step, TheGenerationChangesWithTheParameters) {
    run_ranks(2, [](Communicator &comm) {
        const OneVector model;
        Engine engine(model.spec, comm);
        const auto generation = [&] { return engine.shard(0, VESCOMM_FSDP_MASTER).generation; };
        const auto fill_with = [&](float value) {
            engine.initialise(
                [value](auto, auto, std::span<float> all, auto) { std::ranges::fill(all, value); });
        };
        std::vector<std::uint64_t> seen = {generation()};
        fill_with(1);
        seen.push_back(generation());
        fill_with(2);
        seen.push_back(generation());
        run_passes(engine, model, comm.rank(), 1);
        EXPECT_EQ(generation(), seen.back());
        engine.step();
        seen.push_back(generation());
        for (std::size_t i = 1; i < seen.size(); ++i) EXPECT_GT(seen[i], seen[i - 1]);
        run_passes(engine, model, comm.rank(), std::numeric_limits<float>::infinity());
        EXPECT_EQ(engine.step().skipped, 1);
        EXPECT_EQ(generation(), seen.back());
    });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
