// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Units of experts: each rank holds its experts, and shares them with the ranks that have the same.
#include "fsdp/experts.h"

#include "fsdp/checkpoint/checkpoint_ranks.h"

namespace vescomm::fsdp::testing {
namespace {

using checkpoint::testing_support::TemporaryFolder;

struct MixtureTraining {
    int steps = 3;
    int micro_batches = 1;
    bool recompute = false;
};

struct MixtureOutcome {
    std::vector<std::vector<float>> parameters;
    std::vector<double> norms;
};

// A training on one rank with all experts.
MixtureOutcome train_alone(const MixtureTraining &training = {},
                           vescomm_fsdp_spec_options_t chosen = vescomm_fsdp_spec_options_init()) {
    MixtureOutcome alone;
    chosen.expert_ranks = 1;
    run_ranks(1, [&](Communicator &comm) {
        const MixtureModel model = mixture("zero3", chosen);
        Engine engine(model.spec, comm);
        fill(engine);
        for (int step = 0; step < training.steps; ++step)
            alone.norms.push_back(take_step(engine, model, comm, step));
        alone.parameters = read_views(engine, model);
    });
    return alone;
}

// Trains, and compares with one rank to the bit, and with the report to the byte.
void expect_same_training(int ranks, const std::string &preset,
                          const vescomm_fsdp_spec_options_t &chosen,
                          const MixtureTraining &training, const MixtureOutcome &alone,
                          const std::vector<int> &node_of = {}) {
    SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << preset << ", expert_ranks "
                                      << chosen.expert_ranks << ", slots " << chosen.slots);
    run_ranks(
        ranks,
        [&](Communicator &comm) {
            const MixtureModel model = mixture(preset, chosen);
            std::vector<std::int32_t> nodes(node_of.begin(), node_of.end());
            nodes.resize(static_cast<std::size_t>(ranks));
            const vescomm_fsdp_report_t report =
                model.spec.report_on(nodes, comm.rank(), training.micro_batches, &comm);
            Engine engine(model.spec, comm);
            fill(engine);
            vescomm_fsdp_counters_t before{};
            for (int step = 0; step < training.steps; ++step) {
                before = engine.counters();
                const double norm = take_step(engine, model, comm, step, training.micro_batches,
                                              training.recompute);
                EXPECT_EQ(norm, alone.norms[static_cast<std::size_t>(step)]);
            }
            const vescomm_fsdp_counters_t after = engine.counters();
            EXPECT_EQ(after.allocated_bytes, report.peak_bytes);
            EXPECT_EQ(after.reduce_bytes - before.reduce_bytes, report.reduce_bytes_per_step);
            EXPECT_EQ(after.replica_bytes - before.replica_bytes, report.replica_bytes_per_step);
            if (!training.recompute && chosen.order == VESCOMM_FSDP_DECLARED) {
                EXPECT_EQ(after.gathers - before.gathers, report.gathers_per_step);
                EXPECT_EQ(after.gather_bytes - before.gather_bytes, report.gather_bytes_per_step);
            }
            EXPECT_EQ(read_views(engine, model), part_of(alone.parameters, model, comm.rank()));
        },
        node_of);
}

TEST(Experts, TrainWithTheBitsOfOneRank) {
    const MixtureOutcome alone = train_alone();
    for (const int ranks : {1, 2, 3, 4, 5, 6, 7})
        for (int expert_ranks = 1; expert_ranks <= ranks; ++expert_ranks) {
            if (ranks % expert_ranks != 0 || expert_count % expert_ranks != 0) continue;
            for (const char *preset : {"zero1", "zero2", "zero3"})
                expect_same_training(ranks, preset, mixture_options(expert_ranks), {}, alone);
        }
}

TEST(Experts, TrainWithReplicas) {
    const MixtureOutcome alone = train_alone();
    expect_same_training(4, "hsdp:2", mixture_options(2), {}, alone);
    expect_same_training(6, "hsdp:3", mixture_options(3), {}, alone);
    expect_same_training(8, "hsdp:4", mixture_options(2), {.micro_batches = 2}, alone);
    expect_same_training(6, "hsdp:3", mixture_options(1), {}, alone);
    expect_same_training(3, "ddp", mixture_options(1), {}, alone);
}

TEST(Experts, TrainOnSeveralNodes) {
    const MixtureOutcome alone = train_alone();
    for (const auto &node_of :
         std::vector<std::vector<int>>{{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 2, 2}})
        for (const int expert_ranks : {2, 4})
            expect_same_training(4, "zero3", mixture_options(expert_ranks), {.micro_batches = 2},
                                 alone, node_of);
}

TEST(Experts, TrainWithAnyOptions) {
    const MixtureOutcome alone = train_alone();
    for (const int slots : {2, 3, 20})
        for (const int order :
             {VESCOMM_FSDP_DECLARED, VESCOMM_FSDP_RECORDED, VESCOMM_FSDP_EXPLICIT})
            for (const bool recompute : {false, true}) {
                vescomm_fsdp_spec_options_t chosen = mixture_options(2);
                chosen.slots = chosen.gradient_slots = slots;
                chosen.order = order;
                const MixtureTraining training{.micro_batches = 2, .recompute = recompute};
                expect_same_training(4, "zero3", chosen, training, alone);
            }
    vescomm_fsdp_spec_options_t chosen = mixture_options(3);
    chosen.partner_copy = 1;
    chosen.large_unit_bytes = 1000;
    expect_same_training(6, "zero3", chosen, {}, alone);
    chosen.keep_gathered = chosen.keep_gradients = 1;
    expect_same_training(3, "zero3", chosen, {.micro_batches = 3}, alone);
    chosen = mixture_options(2);
    chosen.compute_type = VESCOMM_BF16;
    expect_same_training(4, "zero3", chosen, {}, train_alone({}, chosen));
}

// Scale blocks are blocks of an expert, so the rounded parameters do not depend on expert_ranks.
TEST(Experts, TravelInEightBits) {
    const auto train = [](Communicator &comm, const std::string &preset, int expert_ranks,
                          vescomm_type_t type) {
        vescomm_fsdp_spec_options_t chosen = mixture_options(expert_ranks);
        chosen.gather_type = type;
        const MixtureModel model = mixture(preset, chosen);
        Engine engine(model.spec, comm);
        fill(engine);
        for (int step = 0; step < 2; ++step) take_step(engine, model, comm, step);
        EXPECT_EQ(engine.counters().allocated_bytes,
                  model.spec.report(comm.ranks(), comm.rank()).peak_bytes);
        return read_views(engine, model);
    };
    for (const vescomm_type_t type : {VESCOMM_I8, VESCOMM_F8E4M3}) {
        std::vector<std::vector<float>> alone;
        run_ranks(1, [&](Communicator &comm) { alone = train(comm, "zero3", 1, type); });
        for (const auto &[ranks, expert_ranks, preset] :
             {std::tuple{2, 2, "zero3"}, {4, 2, "zero3"}, {4, 2, "zero1"}, {8, 2, "hsdp:4"}})
            run_ranks(ranks, [&, preset = preset, expert_ranks = expert_ranks](Communicator &comm) {
                const auto seen = train(comm, preset, expert_ranks, type);
                const MixtureModel model = mixture(preset, mixture_options(expert_ranks));
                EXPECT_EQ(seen, part_of(alone, model, comm.rank()));
            });
    }
}

// Rank 1 sends no gradients before rank 0 has sent those of both kinds. Ranks 0 and 2 have the same
// experts.
TEST(Experts, ASumInEightBitsDoesNotWaitForOneOfTheOtherKind) {
    constexpr double timeout_seconds = 10;
    run_ranks(
        4,
        [](Communicator &comm) {
            vescomm_fsdp_spec_options_t chosen = mixture_options(2);
            chosen.reduce_type = VESCOMM_I8;
            chosen.gradient_slots = 1;
            chosen.keep_gathered = 1;
            Spec spec(chosen);
            const std::uint64_t experts = spec.add_unit("experts", VESCOMM_FSDP_EXPERTS);
            const std::uint64_t dense = spec.add_unit("dense");
            spec.add_parameter(experts, {.name = "w", .shape = {8, 40}});
            spec.add_parameter(dense, {.name = "w", .shape = {30, 20}});
            Engine engine(spec, comm);
            fill(engine);
            for (const bool apart : {false, true}) {
                engine.begin(VESCOMM_FSDP_LAST);
                for (const std::uint64_t unit : {experts, dense}) {
                    engine.pre_forward(unit);
                    engine.post_forward(unit);
                }
                if (apart && comm.rank() == 1) comm.barrier();
                for (const std::uint64_t unit : {dense, experts}) {
                    engine.pre_backward(unit);
                    const std::vector<float> ones(engine.parameter<float>(unit).size(), 1);
                    engine.push_gradient(unit, ones.data(), VESCOMM_F32);
                    engine.post_backward(unit);
                }
                if (apart && comm.rank() != 1) comm.barrier();
                engine.finish_backward();
                EXPECT_EQ(engine.counters().allocated_bytes,
                          spec.report(4, comm.rank()).peak_bytes);
                engine.step();
            }
        },
        {}, timeout_seconds);
}

// With p -= gradient and a gradient of `value` on each rank.
float averaged(int ranks, const std::string &preset, int expert_ranks, int divisor, float value,
               int micro_batches, vescomm_type_t reduce_type = 0) {
    float result = 0;
    run_ranks(ranks, [&](Communicator &comm) {
        vescomm_fsdp_spec_options_t chosen = mixture_options(expert_ranks);
        chosen.average = 1;
        chosen.expert_divisor = divisor;
        chosen.reduce_type = reduce_type;
        Spec spec(chosen);
        spec.preset(preset);
        spec.add_unit("experts", VESCOMM_FSDP_EXPERTS);
        const std::uint64_t ids[] = {spec.add_parameter(0, {.name = "w", .shape = {12, 3}})};
        vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
        settings.learning_rate = 1;
        spec.add_group(ids, vescomm_optimizer_get_sgd(), &settings);
        Engine engine(spec, comm);
        for (int micro = 0; micro < micro_batches; ++micro) {
            engine.begin(micro + 1 == micro_batches ? VESCOMM_FSDP_LAST : 0);
            engine.pre_forward(0);
            engine.post_forward(0);
            engine.pre_backward(0);
            const std::vector<float> terms(engine.parameter<float>(0).size(), value);
            engine.push_gradient(0, terms.data(), VESCOMM_F32);
            engine.post_backward(0);
            engine.finish_backward();
        }
        engine.step();
        engine.begin(VESCOMM_FSDP_EVAL);
        engine.pre_forward(0);
        const std::span<const float> values = engine.parameter<float>(0);
        for (const float x : values) EXPECT_EQ(x, values.front());
        if (comm.rank() == 0) result = -values.front();
        engine.post_forward(0);
    });
    return result;
}

TEST(Experts, AverageOverTheTokensOfAllRanks) {
    EXPECT_EQ(averaged(4, "zero3", 2, 0, 8, 1), 2 * 8.0f / 4);
    EXPECT_EQ(averaged(4, "zero3", 4, 0, 8, 1), 8.0f / 4);
    EXPECT_EQ(averaged(4, "zero3", 1, 0, 8, 1), 8);
    EXPECT_EQ(averaged(4, "zero1", 2, 0, 8, 3), 3 * 2 * 8.0f / 4);
    EXPECT_EQ(averaged(4, "zero3", 2, 2, 8, 2), 2 * 8);
    EXPECT_EQ(averaged(4, "hsdp:2", 2, 0, 8, 2), 2 * 2 * 8.0f / 4);
    EXPECT_EQ(averaged(4, "hsdp:2", 2, 2, 8, 1), 8);
    // The sum of codes in 8 bits has an error of one rounding.
    EXPECT_NEAR(averaged(4, "zero3", 2, 0, 8, 2, VESCOMM_I8), 2 * 2 * 8.0f / 4, 1e-5);
    EXPECT_NEAR(averaged(4, "zero3", 2, 2, 8, 1, VESCOMM_F8E4M3), 8, 1e-5);
    EXPECT_NEAR(averaged(8, "hsdp:4", 2, 0, 8, 1, VESCOMM_I8), 4 * 8.0f / 8, 1e-5);
}

TEST(Experts, AreLoadedOnOtherRanks) {
    const MixtureOutcome alone = train_alone({.steps = 4});
    struct Where {
        int ranks;
        int expert_ranks;
        const char *preset;
    };
    for (const Where &from : {Where{4, 2, "zero3"}, {1, 1, "zero3"}, {4, 2, "hsdp:2"}}) {
        TemporaryFolder folder;
        run_ranks(from.ranks, [&](Communicator &comm) {
            const MixtureModel model = mixture(from.preset, mixture_options(from.expert_ranks));
            Engine engine(model.spec, comm);
            fill(engine);
            for (int step = 0; step < 2; ++step) take_step(engine, model, comm, step);
            engine.save(folder.path("c")).wait(60);
        });
        for (const Where &to : {Where{1, 1, "zero3"},
                                {2, 2, "zero1"},
                                {3, 3, "zero3"},
                                {6, 2, "zero3"},
                                {5, 1, "ddp"},
                                {6, 3, "hsdp:3"}})
            run_ranks(to.ranks, [&](Communicator &comm) {
                const MixtureModel model = mixture(to.preset, mixture_options(to.expert_ranks));
                Engine engine(model.spec, comm);
                engine.load(folder.path("c"));
                for (int step = 2; step < 4; ++step)
                    EXPECT_EQ(take_step(engine, model, comm, step),
                              alone.norms[static_cast<std::size_t>(step)]);
                EXPECT_EQ(read_views(engine, model), part_of(alone.parameters, model, comm.rank()));
            });
    }
}

TEST(Experts, AreNotLoadedIntoAnotherNumber) {
    TemporaryFolder folder;
    const auto spec_with = [](std::int64_t experts) {
        Spec spec(mixture_options(2));
        spec.add_unit("experts", VESCOMM_FSDP_EXPERTS);
        spec.add_parameter(0, {.name = "w", .shape = {experts, 5}});
        return spec;
    };
    run_ranks(2, [&](Communicator &comm) {
        Engine engine(spec_with(8), comm);
        fill(engine);
        engine.save(folder.path("c")).wait(60);
        Engine other(spec_with(6), comm);
        const std::string text = error_of([&] { other.load(folder.path("c")); });
        EXPECT_NE(text.find("\"experts.w\""), std::string::npos) << text;
        EXPECT_NE(text.find("saved as f32 [8, 5], and is wanted as f32 [6, 5]"), std::string::npos)
            << text;
    });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
