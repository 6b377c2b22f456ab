// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Training with the engine: the same bits for any number of ranks, preset and option.
#include <cmath>
#include <limits>

#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

vescomm_fsdp_spec_options_t options() {
    return vescomm_fsdp_spec_options_init();
}

const Outcome &alone() {
    static const Outcome outcome = train_on(1, odd_model(), "zero3", options(), {});
    return outcome;
}

TEST(Engine, ReadsInitialValues) {
    for (const int ranks : {1, 2, 3, 5, 7})
        run_ranks(ranks, [&](Communicator &comm) {
            const Described described = describe(odd_model());
            Engine engine(described.spec, comm);
            fill(engine);
            const std::vector<float> seen = read_all(engine, described.ids);
            std::size_t at = 0;
            for (std::size_t unit = 0; unit < described.ids.size(); ++unit)
                for (std::size_t i = 0; i < described.ids[unit].size(); ++i)
                    for (std::int64_t e = 0; e < elements(odd_model()[unit].parameters[i]); ++e)
                        ASSERT_EQ(seen[at++], initial(described.ids[unit][i], e));
            ASSERT_EQ(at, seen.size());
        });
}

TEST(Engine, HasTheSameBitsOnAnyNumberOfRanks) {
    ASSERT_FALSE(alone().parameters.empty());
    for (const int ranks : {2, 3, 5, 7, 8}) {
        const Outcome many = train_on(ranks, odd_model(), "zero3", options(), {});
        EXPECT_EQ(many.parameters, alone().parameters) << ranks << " ranks";
        EXPECT_EQ(many.norms, alone().norms) << ranks << " ranks";
    }
}

TEST(Engine, HasTheSameBitsWithAnyPreset) {
    for (const char *preset : {"ddp", "zero1", "zero2", "hsdp:2", "mics:3"})
        for (const int micro_batches : {1, 3}) {
            const Training training{.micro_batches = micro_batches, .max_norm = 1};
            const Outcome one = train_on(1, odd_model(), "zero3", options(), {.max_norm = 1});
            const Outcome six = train_on(6, odd_model(), preset, options(), training);
            EXPECT_EQ(six.parameters, one.parameters) << preset << ' ' << micro_batches;
            EXPECT_EQ(six.norms, one.norms) << preset << ' ' << micro_batches;
        }
}

// Replicas along two axes, shards along two, secondary copies.
TEST(Engine, HasTheSameBitsOnAMeshOfSeveralAxes) {
    for (const char *mesh : {"r:2 r:0 3:2", "r:2 3:2 3:0", "r:0 2:2 3:2", "2:0 2:2", "1:2 1:2 1:2",
                             "2:2 3:2 3:0", "R:2 p:0"}) {
        const Training training{.micro_batches = 2, .max_norm = 1, .recompute = true};
        const Outcome one = train_on(1, odd_model(), "zero3", options(), training);
        const Outcome eight = train_on(8, odd_model(), mesh, options(), training);
        EXPECT_EQ(eight.parameters, one.parameters) << mesh;
        EXPECT_EQ(eight.norms, one.norms) << mesh;
    }
}

TEST(Engine, HasTheSameBitsOnSeveralNodes) {
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{{0, 0, 1}, {0, 1, 0, 1}})
        for (const char *preset : {"zero3", "zero1", "hsdp:2"}) {
            const auto ranks = static_cast<int>(nodes.size());
            if (ranks % 2 != 0 && preset == std::string("hsdp:2")) continue;
            const Training training{.micro_batches = 2, .recompute = true};
            const Outcome many = train_on(ranks, odd_model(), preset, options(), training, nodes);
            EXPECT_EQ(many.parameters, alone().parameters) << preset << ' ' << ranks;
            EXPECT_EQ(many.norms, alone().norms) << preset << ' ' << ranks;
        }
}

TEST(Engine, HasTheSameBitsWithAnyOption) {
    for (const int slots : {1, 2, 3, 100})
        for (const int order : {0, 1, 2}) {
            vescomm_fsdp_spec_options_t chosen = options();
            chosen.slots = chosen.gradient_slots = slots;
            chosen.order = order;
            const Training training{.micro_batches = 2, .push = slots == 2, .recompute = true};
            EXPECT_EQ(train_on(3, odd_model(), "zero3", chosen, training).parameters,
                      alone().parameters)
                << slots << " slots, order " << order;
        }
    vescomm_fsdp_spec_options_t kept = options();
    kept.keep_gathered = kept.keep_gradients = 1;
    EXPECT_EQ(train_on(3, odd_model(), "zero3", kept, {.micro_batches = 3}).parameters,
              alone().parameters);
    vescomm_planner_options_t planner = vescomm_planner_options_init();
    planner.mode = VESCOMM_PLANNER_UNIFORM;
    vescomm_fsdp_spec_options_t uniform = options();
    uniform.planner = &planner;
    EXPECT_EQ(train_on(3, odd_model(), "zero3", uniform, {}).parameters, alone().parameters);
}

TEST(Engine, ClipsByTheNormOfAllRanks) {
    const auto units = odd_model();
    double squares = 0;
    std::uint64_t id = 0;
    for (const UnitModel &unit : units)
        for (const ParameterSpec &parameter : unit.parameters) {
            for (std::int64_t i = 0; i < elements(parameter); ++i) {
                const double g = total_gradient(id, i, 0);
                squares += g * g;
            }
            ++id;
        }
    EXPECT_EQ(alone().norms[0], std::sqrt(squares));
    const Training clipped{.max_norm = 1};
    const Outcome one = train_on(1, units, "zero3", options(), clipped);
    EXPECT_NE(one.parameters, alone().parameters);
    for (const int ranks : {2, 5})
        EXPECT_EQ(train_on(ranks, units, "zero3", options(), clipped).parameters, one.parameters);
}

TEST(Engine, MeasuresTheNormWithAnInfiniteLimit) {
    const Training measured{.max_norm = std::numeric_limits<double>::infinity()};
    for (const int ranks : {1, 3}) {
        const Outcome outcome = train_on(ranks, odd_model(), "zero3", options(), measured);
        EXPECT_EQ(outcome.parameters, alone().parameters);
        EXPECT_EQ(outcome.norms, alone().norms);
    }
}

TEST(Engine, ComputesInBf16FromF32Masters) {
    vescomm_fsdp_spec_options_t bf16 = options();
    bf16.compute_type = VESCOMM_BF16;
    const Outcome one = train_on(1, odd_model(), "zero3", bf16, {});
    EXPECT_EQ(train_on(4, odd_model(), "zero3", bf16, {.push = true}).parameters, one.parameters);
    // The masters are f32, so the rounded result equals the f32 run.
    ASSERT_EQ(one.parameters.size(), alone().parameters.size());
    for (std::size_t i = 0; i < one.parameters.size(); ++i)
        ASSERT_EQ(from_bf16(to_bf16(alone().parameters[i])), one.parameters[i]);
}

// Gradients of f32 for parameters of bf16, and parameters of f16.
TEST(Engine, HasOtherTypesOfParametersAndGradients) {
    for (const vescomm_type_t type : {VESCOMM_BF16, VESCOMM_F16}) {
        vescomm_fsdp_spec_options_t chosen = options();
        chosen.compute_type = type;
        chosen.gradient_type = VESCOMM_F32;
        run_ranks(3, [&](Communicator &comm) {
            const Described described = describe(odd_model(), "zero3", chosen);
            Engine engine(described.spec, comm);
            fill(engine);
            for (int step = 0; step < 3; ++step) {
                micro_batch(engine, described.ids, {}, step, comm.rank(), 3, true);
                engine.step();
            }
            // The masters are those of a run in f32.
            const std::vector<UnitModel> units = odd_model();
            std::size_t begin = 0;
            for (std::size_t unit = 0; unit < described.ids.size(); ++unit) {
                const vescomm_fsdp_view_t master = engine.shard(unit, VESCOMM_FSDP_MASTER);
                for (const auto &piece : engine.pieces(unit)) {
                    std::size_t first = begin;
                    for (const std::uint64_t id : described.ids[unit]) {
                        if (id == piece.parameter) break;
                        first += static_cast<std::size_t>(
                            elements(units[unit].parameters[id - described.ids[unit][0]]));
                    }
                    for (std::int64_t i = 0; i < piece.elements; ++i)
                        ASSERT_EQ(read(master, piece.offset + i),
                                  alone().parameters[first + piece.first + i]);
                }
                for (const ParameterSpec &parameter : units[unit].parameters)
                    begin += static_cast<std::size_t>(elements(parameter));
            }
        });
    }
}

// The report against the counters of the engine, to the byte.
TEST(Engine, AllocatesAndSendsWhatTheReportSays) {
    for (const char *preset : {"ddp", "zero1", "zero3", "hsdp:3"})
        for (const int micro_batches : {1, 2})
            for (const int slots : {1, 3})
                run_ranks(6, [&](Communicator &comm) {
                    vescomm_fsdp_spec_options_t chosen = options();
                    chosen.slots = chosen.gradient_slots = slots;
                    const Described described = describe(odd_model(), preset, chosen);
                    const vescomm_fsdp_report_t report =
                        described.spec.report(comm.ranks(), comm.rank(), micro_batches);
                    const Outcome outcome =
                        train(comm, described, {.micro_batches = micro_batches});
                    const auto &counters = outcome.counters;
                    EXPECT_EQ(counters.allocated_bytes, report.peak_bytes) << preset;
                    EXPECT_EQ(counters.gathers, report.gathers_per_step) << preset << slots;
                    EXPECT_EQ(counters.gather_bytes, report.gather_bytes_per_step) << preset;
                    EXPECT_EQ(counters.reduce_bytes, report.reduce_bytes_per_step) << preset;
                    EXPECT_EQ(counters.replica_bytes, report.replica_bytes_per_step) << preset;
                    EXPECT_EQ(counters.deviations, 0u);
                });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
