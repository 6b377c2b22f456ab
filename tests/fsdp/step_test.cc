// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The step: factors that f32 does not hold, settings after a reset, and optimizers that fail.
#include <algorithm>
#include <cmath>
#include <limits>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/observed_sgd.h"
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

std::uint64_t generation_of(Engine &engine) {
    return engine.shard(0, VESCOMM_FSDP_MASTER).generation;
}

void fill_with(Engine &engine, float value) {
    engine.initialise(
        [value](auto, auto, std::span<float> all, auto) { std::ranges::fill(all, value); });
}

// Two views have the same generation if the parameters have not changed between them.
TEST(Step, TheGenerationChangesWithTheParameters) {
    run_ranks(2, [](Communicator &comm) {
        const OneVector model;
        Engine engine(model.spec, comm);
        const auto generation = [&] { return generation_of(engine); };
        std::vector<std::uint64_t> seen = {generation()};
        fill_with(engine, 1);
        seen.push_back(generation());
        fill_with(engine, 2);
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

// SGD whose run number `fails_at`, counted from 1, fails. 0: none does.
struct FailingSgd : ObservedSgd {
    FailingSgd() {
        kind.name = "failing sgd";
        before = [this](const vescomm_optimizer_run_t &) { return ++runs == fails_at ? 7 : 0; };
    }

    int runs = 0;
    int fails_at = 0;
};

struct FailingModel {
    FailingModel(const std::string &preset, const vescomm_fsdp_spec_options_t &options)
        : described(describe(odd_model(), preset, options)) {
        vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
        settings.momentum = 0.5;
        sgd.add_to(described, settings);
    }

    void pass(Engine &engine, const Communicator &comm, int step) const {
        micro_batch(engine, described.ids, {}, step, comm.rank(), comm.ranks(), true);
    }

    FailingSgd sgd;
    Described described;
};

vescomm_status_t status_of_step(Engine &engine) {
    vescomm_fsdp_step_t step = vescomm_fsdp_step_init();
    return vescomm_fsdp_step(engine.get(), &step, nullptr);
}

std::string sentence_of(const std::function<void()> &call) {
    try {
        call();
    } catch (const Error &error) {
        return error.what();
    }
    return "";
}

// The rank `failing` fails in the second step. `set_values` gives all parameters values again,
// which those of one step after `fill` then are.
void expect_no_training_on_partly_updated_values(const std::string &preset, int ranks, int failing,
                                                 const vescomm_fsdp_spec_options_t &options,
                                                 bool loads) {
    SCOPED_TRACE(preset + " on " + std::to_string(ranks) + " ranks");
    checkpoint::testing_support::TemporaryFolder folder;
    run_ranks(ranks, [&](Communicator &comm) {
        FailingModel model(preset, options);
        Engine engine(model.described.spec, comm);
        const auto step = [&](int number) {
            model.pass(engine, comm, number);
            engine.step();
        };
        fill(engine);
        if (loads) engine.save(folder.path("c")).wait(60);
        step(0);
        const std::vector<float> after_one = read_all(engine, model.described.ids);
        const bool fails = comm.rank() == failing;
        if (fails) model.sgd.fails_at = model.sgd.runs + 2;
        model.pass(engine, comm, 1);
        // The update of another rank may be complete before it learns of the failure.
        std::string why = sentence_of([&] { engine.step(); });
        for (const char *part : {"optimizer \"failing sgd\" returned 7 for a run of ",
                                 "which begins at element ", " of parameter \"", "\" of unit \""})
            EXPECT_TRUE(!fails || why.find(part) != std::string::npos) << why;
        if (why.empty()) why = sentence_of([&] { step(2); });
        EXPECT_FALSE(why.empty()) << "training goes on without rank " << failing;
        comm.barrier();  // a reset ends the events of other ranks
        const auto expect_refused = [&] {
            const std::string refusal =
                "the parameters of rank " + std::to_string(failing) + " are partly set or updated";
            for (const std::string &text :
                 {sentence_of([&] { engine.begin(VESCOMM_FSDP_EVAL); }),
                  sentence_of([&] { engine.begin(VESCOMM_FSDP_LAST); }),
                  sentence_of([&] { engine.unshard(0); }),
                  sentence_of([&] { std::ignore = engine.save(folder.path("no")); })})
                EXPECT_NE(text.find(refusal), std::string::npos) << text;
        };
        for (int time = 0; time < 2; ++time) {
            engine.reset();
            expect_refused();
        }
        if (loads) {
            engine.load(folder.path("c"));
            step(0);
            EXPECT_EQ(read_all(engine, model.described.ids), after_one);
            EXPECT_EQ(engine.step_summary().step, 1);
        } else {
            fill(engine);
            EXPECT_EQ(read_all(engine, model.described.ids).size(), after_one.size());
            step(0);
        }
    });
}

TEST(Step, NoRankTrainsOnValuesThatAnOptimizerHasPartlyUpdated) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    for (const bool loads : {false, true}) {
        for (const int ranks : {1, 2, 3})
            for (int failing = 0; failing < ranks; ++failing)
                expect_no_training_on_partly_updated_values("zero3", ranks, failing, options,
                                                            loads);
        expect_no_training_on_partly_updated_values("hsdp:2", 4, 3, options, loads);
        options.partner_copy = 1;
        expect_no_training_on_partly_updated_values("zero1", 3, 1, options, loads);
    }
}

// Initial values that one rank has set partly.
TEST(Step, NoRankTrainsOnInitialValuesThatAreMissing) {
    run_ranks(3, [](Communicator &comm) {
        const FailingModel model("zero3", vescomm_fsdp_spec_options_init());
        Engine engine(model.described.spec, comm);
        const auto fill_with = [&](float value, bool fails) {
            engine.initialise([&](auto, auto, std::span<float> all, auto) {
                std::ranges::fill(all, value);
                if (fails) throw std::runtime_error("the values are missing");
            });
        };
        if (comm.rank() == 1) {
            EXPECT_THROW(fill_with(3, true), std::runtime_error);
        } else {
            fill_with(3, false);
        }
        comm.barrier();
        engine.reset();
        const std::string why = sentence_of([&] { engine.begin(VESCOMM_FSDP_LAST); });
        EXPECT_NE(why.find("the parameters of rank 1 are partly set"), std::string::npos) << why;
        fill_with(4, false);
        for (const float x : read_all(engine, model.described.ids)) ASSERT_EQ(x, 4);
        model.pass(engine, comm, 0);
        EXPECT_EQ(engine.step().skipped, 0);
    });
}

// Initial values that one rank has not set, because it failed before. Its generation is that of the
// others nevertheless: after a death the survivors compare it.
TEST(Step, NoRankTrainsOnInitialValuesThatOneRankHasNotSet) {
    run_ranks(3, [](Communicator &comm) {
        const OneVector model;
        Engine engine(model.spec, comm);
        const auto generation = [&] { return generation_of(engine); };
        fill_with(engine, 1);
        const std::uint64_t first = generation();
        if (comm.rank() == 1) {
            EXPECT_THROW(engine.pre_forward(0), Error) << "no micro-batch has begun";
            EXPECT_THROW(fill_with(engine, 2), Error);
        } else {
            fill_with(engine, 2);
        }
        comm.barrier();
        engine.reset();
        EXPECT_EQ(generation(), first + 1);
        const std::string why = sentence_of([&] { engine.begin(VESCOMM_FSDP_LAST); });
        EXPECT_NE(why.find("the parameters of rank 1 are partly set"), std::string::npos) << why;
        fill_with(engine, 3);
        EXPECT_EQ(generation(), first + 2);
        EXPECT_EQ(values(engine, model), std::vector<float>(10, 3.0f));
        run_passes(engine, model, comm.rank(), 1);
        EXPECT_EQ(engine.step().skipped, 0);
        EXPECT_EQ(values(engine, model), std::vector<float>(10, 2.0f));
    });
}

// New values have no gradients: neither complete ones, nor those of a part of the micro-batches.
TEST(Step, HasNoGradientsOfValuesThatWereReplaced) {
    checkpoint::testing_support::TemporaryFolder folder;
    for (const bool loads : {false, true})
        for (const bool keeps : {false, true})
            run_ranks(2, [&](Communicator &comm) {
                vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
                options.keep_gradients = keeps ? 1 : 0;
                const Described described = describe(odd_model(), "zero3", options);
                Engine engine(described.spec, comm);
                fill(engine);
                if (loads) engine.save(folder.path("c")).wait(60);
                for (const bool last : {true, false}) {
                    micro_batch(engine, described.ids, {}, 7, comm.rank(), 2, last);
                    if (loads) engine.load(folder.path("c"));
                    else fill(engine);
                    if (!last) continue;
                    comm.barrier();  // a step that is refused ends the backward pass of the others
                    EXPECT_EQ(status_of_step(engine), VESCOMM_ERROR_INVALID_ARGUMENT);
                    comm.barrier();  // a rank that resets ends the step of the others
                    engine.reset();
                }
                micro_batch(engine, described.ids, {}, 0, comm.rank(), 2, true);
                engine.step();
                EXPECT_EQ(read_all(engine, described.ids),
                          train_on(1, odd_model(), "zero3", vescomm_fsdp_spec_options_init(),
                                   {.steps = 1})
                              .parameters);
            });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
