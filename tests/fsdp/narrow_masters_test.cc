// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Masters in bf16 and f16. Gradients are whole numbers, so the bits do not depend on the number of
// ranks.
#include <filesystem>
#include <limits>

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/experts.h"
#include "fsdp/observed_sgd.h"
#include "fsdp/refused.h"
#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

using checkpoint::testing_support::TemporaryFolder;

constexpr vescomm_fsdp_rounding_t nearest = VESCOMM_FSDP_ROUND_NEAREST;
constexpr vescomm_fsdp_rounding_t stochastic = VESCOMM_FSDP_ROUND_STOCHASTIC;
constexpr double wait_seconds = 60;

// By type of masters.
class NarrowMasters : public ::testing::TestWithParam<vescomm_type_t> {
protected:
    static vescomm_type_t type() { return GetParam(); }
    // `compute_type`: 0 is the type of masters.
    static vescomm_fsdp_spec_options_t narrow(vescomm_fsdp_rounding_t rounding = nearest,
                                              vescomm_type_t compute_type = 0) {
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.compute_type = compute_type == 0 ? type() : compute_type;
        options.gradient_type = VESCOMM_F32;
        options.master_type = type();
        options.master_rounding = rounding;
        options.seed = 5;
        return options;
    }
    // To the nearest master.
    static float rounded(float x) {
        return type() == VESCOMM_F16 ? from_f16(to_f16(x)) : from_bf16(to_bf16(x));
    }
};

// With vectors that every rank has.
std::vector<UnitModel> mixed_model() {
    std::vector<UnitModel> units = odd_model();
    units[1].parameters[1].flags = VESCOMM_FSDP_REPLICATED;
    return units;
}

const Training training{.steps = 3, .micro_batches = 2, .max_norm = 30};

TEST_P(NarrowMasters, HaveTheSameBitsOnAnyNumberOfRanksWithAnyPreset) {
    for (const vescomm_fsdp_rounding_t rounding : {nearest, stochastic}) {
        const Outcome alone = train_on(1, odd_model(), "zero3", narrow(rounding), training);
        for (const float x : alone.parameters) EXPECT_EQ(x, rounded(x));
        for (const int ranks : {2, 3, 5})
            for (const char *preset : {"zero3", "zero2", "zero1", "ddp"}) {
                const Outcome many =
                    train_on(ranks, odd_model(), preset, narrow(rounding), training);
                EXPECT_EQ(many.parameters, alone.parameters) << preset << " on " << ranks;
                EXPECT_EQ(many.norms, alone.norms) << preset << " on " << ranks;
            }
        for (const char *preset : {"hsdp:2", "mics:2", "hpz:2"})
            EXPECT_EQ(train_on(4, odd_model(), preset, narrow(rounding), training).parameters,
                      alone.parameters)
                << preset;
    }
}

TEST_P(NarrowMasters, HaveTheSameBitsWithEveryOtherOption) {
    for (const vescomm_fsdp_rounding_t rounding : {nearest, stochastic}) {
        const Outcome plain = train_on(1, mixed_model(), "zero3", narrow(rounding), training);
        EXPECT_EQ(
            train_on(3, mixed_model(), "zero3", narrow(rounding, VESCOMM_F32), training).parameters,
            plain.parameters);
        const TemporaryFolder folder;
        std::filesystem::create_directory(folder.path("offload"));
        const std::string offload = folder.path("offload");
        for (const int threads : {1, 3}) {
            vescomm_fsdp_spec_options_t options = narrow(rounding);
            options.offload_folder = offload.c_str();
            options.partner_copy = 1;
            options.update_threads = threads;
            EXPECT_EQ(train_on(3, mixed_model(), "zero3", options, training).parameters,
                      plain.parameters);
        }
    }
}

TEST_P(NarrowMasters, DependOnTheSeedOnlyWithStochasticRounding) {
    for (const vescomm_fsdp_rounding_t rounding : {nearest, stochastic}) {
        vescomm_fsdp_spec_options_t other = narrow(rounding);
        other.seed = 6;
        const bool same =
            train_on(1, odd_model(), "zero3", narrow(rounding), training).parameters ==
            train_on(1, odd_model(), "zero3", other, training).parameters;
        EXPECT_EQ(same, rounding == nearest);
    }
}

// A change of 2^-11 of the values, 2^-14 for f16, is an eighth of the half distance or less:
// nearest loses all of them.
TEST_P(NarrowMasters, SmallChangesCountOnAverageWithStochasticRounding) {
    // Between 1 and 2 numbers are 2^-7 apart, or 2^-10.
    const float distance = type() == VESCOMM_F16 ? 0x1p-10f : 0x1p-7f;
    for (const vescomm_fsdp_rounding_t rounding : {nearest, stochastic})
        run_ranks(2, [&](Communicator &comm) {
            Described described =
                describe({{"unit", {{.name = "w", .shape = {4096}}}}}, "zero3", narrow(rounding));
            vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
            settings.learning_rate = distance / 8;
            described.spec.add_group(all_ids(described), vescomm_optimizer_get_sgd(), &settings);
            Engine engine(described.spec, comm);
            engine.initialise(
                [](auto, auto, std::span<float> piece, auto) { std::ranges::fill(piece, 1.0f); });
            constexpr int steps = 16;
            for (int step = 0; step < steps; ++step) {
                engine.begin(VESCOMM_FSDP_LAST);
                engine.pre_forward(0);
                engine.post_forward(0);
                engine.pre_backward(0);
                const auto view = engine.gradient(described.ids[0][0]).first;
                for (std::int64_t i = 0; i < view.elements; ++i) write(view, i, -0.5f);
                engine.post_backward(0);
                engine.finish_backward();
                engine.step();
            }
            double mean = 0;
            for (const float x : read_all(engine, described.ids)) mean += x / 4096.0;
            const double expected = rounding == nearest ? 1 : 1 + steps * distance / 8;
            // The deviation of one element is below sqrt(16 / 8) distances.
            EXPECT_NEAR(mean, expected, rounding == nearest ? 0 : 6 * 1.5 * distance / 64);
        });
}

TEST_P(NarrowMasters, TakeTwoBytesAndAreAllocatedAsReported) {
    for (const char *preset : {"zero3", "zero1", "ddp", "hsdp:2", "hpz:2"})
        for (const vescomm_type_t compute : {VESCOMM_F32, type()})
            for (const int partner_copy : {0, 1})
                run_ranks(4, [&](Communicator &comm) {
                    vescomm_fsdp_spec_options_t options = narrow(stochastic, compute);
                    options.partner_copy = partner_copy;
                    const Described described = describe(mixed_model(), preset, options);
                    const auto report = described.spec.report(4, comm.rank(), 2);
                    options.master_type = VESCOMM_F32;
                    const auto wide =
                        describe(mixed_model(), preset, options).spec.report(4, comm.rank(), 2);
                    EXPECT_EQ(report.shard_elements, wide.shard_elements);
                    EXPECT_EQ(2 * report.master_bytes, wide.master_bytes);
                    EXPECT_EQ(report.gradient_bytes, wide.gradient_bytes);
                    EXPECT_EQ(report.optimizer_bytes, wide.optimizer_bytes);
                    EXPECT_EQ(report.widened_bytes, 0);
                    const Outcome outcome = train(comm, described, training);
                    EXPECT_EQ(outcome.counters.allocated_bytes, report.peak_bytes) << preset;
                    EXPECT_EQ(outcome.counters.gather_bytes, report.gather_bytes_per_step);
                });
}

// A kind that is not concurrent gets its whole run in f32.
TEST_P(NarrowMasters, AreWidenedInMemoryThatTheReportHas) {
    const std::vector<UnitModel> units = {{"large", {{.name = "w", .shape = {300, 100}}}},
                                          {"small", {{.name = "w", .shape = {3, 5}}}}};
    for (const int partner_copy : {0, 1})
        run_ranks(2, [&](Communicator &comm) {
            vescomm_fsdp_spec_options_t options = narrow(stochastic);
            options.partner_copy = partner_copy;
            Described described = describe(units, "zero3", options);
            ObservedSgd sgd;
            sgd.kind.concurrent = 0;
            std::int64_t largest = 0;
            sgd.before = [&](const vescomm_optimizer_run_t &run) {
                largest = std::max(largest, run.elements);
                return 0;
            };
            sgd.add_to(described);
            const auto report = described.spec.report(2, comm.rank());
            const Outcome outcome = train(comm, described, {});
            EXPECT_EQ(report.widened_bytes > 0, largest > 8192);
            EXPECT_GE(report.widened_bytes, static_cast<std::uint64_t>(largest) * 4);
            EXPECT_LE(report.widened_bytes,
                      static_cast<std::uint64_t>(largest) * (partner_copy ? 8 : 4));
            EXPECT_EQ(outcome.counters.allocated_bytes, report.peak_bytes);
        });
}

TEST_P(NarrowMasters, OptimizersSeeRunsInF32) {
    std::vector<Outcome> outcomes;
    for (const int concurrent : {0, 1})
        for (const int ranks : {1, 3}) {
            std::vector<Outcome> of_ranks(static_cast<std::size_t>(ranks));
            run_ranks(ranks, [&](Communicator &comm) {
                Described described = describe(odd_model(), "zero3", narrow(stochastic));
                ObservedSgd sgd;
                sgd.kind.concurrent = concurrent;
                sgd.add_to(described);
                of_ranks[static_cast<std::size_t>(comm.rank())] = train(comm, described, training);
            });
            outcomes.push_back(of_ranks[0]);
        }
    for (const Outcome &outcome : outcomes) EXPECT_EQ(outcome.parameters, outcomes[0].parameters);
}

// Parts of a piece are set one after the other.
TEST_P(NarrowMasters, OfLargePiecesAreSetInParts) {
    run_ranks(3, [](Communicator &comm) {
        const Described described =
            describe({{"unit", {{.name = "w", .shape = {100'003}}}}}, "zero3", narrow());
        Engine engine(described.spec, comm);
        const auto value = [](std::int64_t element) { return static_cast<float>(element % 251); };
        engine.initialise([&](auto, std::int64_t first, std::span<float> part, auto) {
            for (std::size_t i = 0; i < part.size(); ++i)
                part[i] = value(first + static_cast<std::int64_t>(i));
        });
        const std::vector<float> all = read_all(engine, described.ids);
        ASSERT_EQ(all.size(), 100'003u);
        for (std::size_t i = 0; i < all.size(); ++i)
            EXPECT_EQ(all[i], value(static_cast<std::int64_t>(i))) << "element " << i;
    });
}

TEST_P(NarrowMasters, HaveViewsInTheirType) {
    run_ranks(3, [](Communicator &comm) {
        const Described described = describe(odd_model(), "zero3", narrow());
        Engine engine(described.spec, comm);
        fill(engine);
        for (std::uint64_t unit = 0; unit < described.ids.size(); ++unit) {
            const vescomm_fsdp_view_t view = engine.shard(unit, VESCOMM_FSDP_MASTER);
            EXPECT_EQ(view.type, type());
            EXPECT_EQ(engine.shard(unit, VESCOMM_FSDP_GRADIENT).type, VESCOMM_F32);
            for (const vescomm_optimizer_piece_t &piece : engine.pieces(unit))
                for (std::int64_t i = 0; i < piece.elements; ++i)
                    EXPECT_EQ(read(view, piece.offset + i),
                              rounded(initial(piece.parameter, piece.first + i)));
        }
    });
}

// With frozen and tied parameters.
TEST_P(NarrowMasters, OfExpertsHaveTheSameBitsForAnyDivision) {
    std::vector<std::vector<float>> whole;
    for (const int ranks : {1, 4})
        for (const int expert_ranks : {1, 2, 4}) {
            if (expert_ranks > ranks) continue;
            run_ranks(ranks, [&](Communicator &comm) {
                vescomm_fsdp_spec_options_t options = narrow(stochastic);
                options.expert_ranks = expert_ranks;
                const MixtureModel model = mixture("zero3", options);
                Engine engine(model.spec, comm);
                fill(engine);
                for (int step = 0; step < 3; ++step) take_step(engine, model, comm, step);
                EXPECT_EQ(engine.counters().allocated_bytes,
                          model.spec.report(ranks, comm.rank()).peak_bytes);
                const auto seen = read_views(engine, model);
                if (ranks == 1) whole = seen;
                else EXPECT_EQ(seen, part_of(whole, model, comm.rank()));
            });
        }
}

TEST_P(NarrowMasters, AreQuantisedForGathers) {
    for (const vescomm_type_t code : {VESCOMM_I8, VESCOMM_F8E4M3}) {
        vescomm_fsdp_spec_options_t options = narrow(stochastic);
        options.gather_type = code;
        const Outcome alone = train_on(1, odd_model(), "zero3", options, training);
        for (const char *preset : {"zero3", "hpz:2", "ddp"})
            EXPECT_EQ(train_on(4, odd_model(), preset, options, training).parameters,
                      alone.parameters)
                << preset;
    }
}

TEST_P(NarrowMasters, AreEqualOnReplicas) {
    for (const char *preset : {"ddp", "hsdp:2", "zero3"})
        run_ranks(4, [&](Communicator &comm) {
            vescomm_fsdp_spec_options_t options = narrow(stochastic);
            options.partner_copy = 1;
            const Described described = describe(mixed_model(), preset, options);
            Engine engine(described.spec, comm);
            fill(engine);
            for (int step = 0; step < 2; ++step) {
                micro_batch(engine, described.ids, {}, step, comm.rank(), comm.ranks(), true);
                engine.step();
                engine.check_replicas();
            }
        });
}

// Trains from `begin` to `end`, after a load if `load` is not empty, and saves.
std::vector<float> train_between(int ranks, const vescomm_fsdp_spec_options_t &options, int begin,
                                 int end, const std::string &load, const std::string &save) {
    std::vector<float> seen;
    run_ranks(ranks, [&](Communicator &comm) {
        const Described described = describe(mixed_model(), "zero3", options);
        Engine engine(described.spec, comm);
        if (load.empty()) fill(engine);
        else engine.load(load);
        for (int step = begin; step < end; ++step) {
            micro_batch(engine, described.ids, {}, step, comm.rank(), comm.ranks(), true);
            engine.step();
        }
        if (!save.empty()) engine.save(save).wait(wait_seconds);
        const std::vector<float> all = read_all(engine, described.ids);
        if (comm.rank() == 0) seen = all;
    });
    return seen;
}

TEST_P(NarrowMasters, GoOnFromASaveOnAnyNumberOfRanks) {
    const TemporaryFolder folder;
    const std::string save = folder.path("c");
    const auto whole = train_between(3, narrow(stochastic), 0, 4, "", "");
    train_between(3, narrow(stochastic), 0, 2, "", save);
    const checkpoint::Checkpoint saved(save);
    for (const checkpoint::Tensor &tensor : saved.tensors())
        EXPECT_EQ(tensor.type, tensor.role == "master" ? type() : VESCOMM_F32) << tensor.name;
    for (const int ranks : {1, 2, 5})
        EXPECT_EQ(train_between(ranks, narrow(stochastic), 2, 4, save, ""), whole) << ranks;
}

TEST_P(NarrowMasters, AreLoadedFromF32AndIntoF32) {
    const TemporaryFolder folder;
    vescomm_fsdp_spec_options_t wide = narrow(stochastic, VESCOMM_F32);
    wide.master_type = VESCOMM_F32;
    const auto in_f32 = train_between(3, wide, 0, 2, "", folder.path("f32"));
    auto expected = in_f32;
    for (float &x : expected) x = rounded(x);
    ASSERT_NE(expected, in_f32);
    EXPECT_EQ(train_between(2, narrow(stochastic), 2, 2, folder.path("f32"), ""), expected);
    const auto saved = train_between(2, narrow(), 0, 2, "", folder.path("narrow"));
    EXPECT_EQ(train_between(3, wide, 2, 2, folder.path("narrow"), ""), saved);
    // Into the other narrow type.
    const vescomm_type_t other = type() == VESCOMM_F16 ? VESCOMM_BF16 : VESCOMM_F16;
    vescomm_fsdp_spec_options_t options = narrow(nearest, VESCOMM_F32);
    options.master_type = other;
    expected = saved;
    for (float &x : expected)
        x = other == VESCOMM_F16 ? from_f16(to_f16(x)) : from_bf16(to_bf16(x));
    EXPECT_EQ(train_between(3, options, 2, 2, folder.path("narrow"), ""), expected);
}

TEST_P(NarrowMasters, AreRefusedWithTheReason) {
    const auto refusal = [](vescomm_fsdp_spec_options_t options) {
        return sentence_of([&] { describe(odd_model(), "zero3", options); });
    };
    auto options = narrow();
    options.master_type = VESCOMM_F8E4M3;
    EXPECT_NE(refusal(options).find("VESCOMM_F32, VESCOMM_BF16 or VESCOMM_F16"), std::string::npos);
    options = narrow(2);
    EXPECT_NE(refusal(options).find("master_rounding is 2"), std::string::npos);
    options = narrow(nearest);
    options.master_type = 0;
    EXPECT_NE(refusal(options).find("which are not rounded"), std::string::npos);
    const bool half = type() == VESCOMM_F16;
    for (const vescomm_type_t gathered :
         {half ? VESCOMM_BF16 : VESCOMM_F16, VESCOMM_F8E4M3, VESCOMM_F8E5M2})
        EXPECT_NE(refusal(narrow(nearest, gathered))
                      .find(half ? "gather it in f32 or f16" : "gather it in f32 or bf16"),
                  std::string::npos);
}

TEST_P(NarrowMasters, MustBeTheSameOnAllRanks) {
    for (const bool differ_in_type : {true, false})
        run_ranks(2, [&](Communicator &comm) {
            auto options = narrow(stochastic);
            if (comm.rank() == 1) {
                if (differ_in_type) options.master_type = VESCOMM_F32;
                else options.master_rounding = nearest;
            }
            const Described described = describe(odd_model(), "zero3", options);
            try {
                const Engine engine(described.spec, comm);
                ADD_FAILURE() << "ranks differ";
            } catch (const Error &error) {
                EXPECT_EQ(error.status(), VESCOMM_ERROR_MISMATCH) << error.what();
            }
        });
}

// A value beyond the largest master is infinite.
TEST_P(NarrowMasters, OverflowToInfinity) {
    run_ranks(2, [](Communicator &comm) {
        const Described described =
            describe({{"unit", {{.name = "w", .shape = {4}}}}}, "zero3", narrow());
        Engine engine(described.spec, comm);
        engine.initialise(
            [](auto, auto, std::span<float> piece, auto) { std::ranges::fill(piece, 70000.0f); });
        for (const float x : read_all(engine, described.ids))
            EXPECT_EQ(x, type() == VESCOMM_F16 ? std::numeric_limits<float>::infinity()
                                               : from_bf16(to_bf16(70000)));
    });
}

INSTANTIATE_TEST_SUITE_P(Type, NarrowMasters, ::testing::Values(VESCOMM_BF16, VESCOMM_F16),
                         [](const auto &info) {
                             return info.param == VESCOMM_F16 ? "F16" : "Bf16";
                         });

}  // namespace
}  // namespace vescomm::fsdp::testing
