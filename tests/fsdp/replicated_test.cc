// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Parameters with VESCOMM_FSDP_REPLICATED: whole on every rank, in units whose others are sharded.
#include "fsdp/replicated.h"

#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/observed_sgd.h"
#include "fsdp/refused.h"

namespace vescomm::fsdp::testing {
namespace {

using checkpoint::testing_support::TemporaryFolder;

vescomm_fsdp_spec_options_t options() {
    return vescomm_fsdp_spec_options_init();
}

TEST(Replicated, TrainAsShardedOnes) {
    const Training training{.steps = 3, .micro_batches = 2, .max_norm = 30, .recompute = true};
    const Outcome one = train_on(1, odd_model(), "zero3", options(), training);
    const auto compare = [&](int ranks, const std::string &mesh,
                             const vescomm_fsdp_spec_options_t &chosen) {
        SCOPED_TRACE(mesh + " on " + std::to_string(ranks) + " ranks");
        const Outcome outcome = train_on(ranks, with_replicated(), mesh, chosen, training);
        EXPECT_EQ(outcome.parameters, one.parameters);
        EXPECT_EQ(outcome.norms, one.norms);
    };
    for (const int ranks : {1, 2, 3, 5})
        for (const char *preset : {"zero3", "zero1", "zero2", "ddp"})
            compare(ranks, preset, options());
    for (const char *mesh : {"hsdp:2", "hsdp:3", "hpz:2", "r:0 r:1 3:3"})
        compare(6, mesh, options());
    vescomm_fsdp_spec_options_t chosen = options();
    chosen.partner_copy = 1;
    compare(3, "zero3", chosen);
    chosen = options();
    chosen.keep_gradients = 1;
    compare(3, "zero3", chosen);
}

TEST(Replicated, HaveTheTypeOfTheirUnit) {
    vescomm_fsdp_spec_options_t chosen = options();
    chosen.average = 1;
    for (const vescomm_type_t type : {VESCOMM_BF16, VESCOMM_F16}) {
        chosen.compute_type = type;
        chosen.gradient_type = type;
        const Training training{.micro_batches = 2, .push = true};
        const Outcome one = train_on(1, odd_model(), "zero3", chosen, training);
        for (const int ranks : {2, 4})
            EXPECT_EQ(train_on(ranks, with_replicated(), "zero3", chosen, training).parameters,
                      train_on(ranks, odd_model(), "zero3", chosen, training).parameters);
        EXPECT_EQ(train_on(1, with_replicated(), "zero3", chosen, training).parameters,
                  one.parameters);
    }
}

// 8 bits are for sharded parameters only; replicated ones keep their own type.
TEST(Replicated, AreNotQuantised) {
    vescomm_fsdp_spec_options_t chosen = options();
    chosen.gather_type = VESCOMM_I8;
    const Outcome exact = train_on(1, odd_model(), "zero3", options(), {});
    EXPECT_EQ(train_on(3, all_replicated(), "zero3", chosen, {}).parameters, exact.parameters);
    train_on(3, with_replicated(), "zero3", chosen, {});
}

TEST(Replicated, CountInTheReportAsTheEngineCounts) {
    for (const vescomm_type_t type : {VESCOMM_F32, VESCOMM_BF16})
        for (const char *preset : {"zero3", "zero1", "hsdp:3", "hpz:2", "ddp"})
            for (const int micro_batches : {1, 2})
                run_ranks(6, [&](Communicator &comm) {
                    SCOPED_TRACE(preset);
                    vescomm_fsdp_spec_options_t chosen = options();
                    chosen.compute_type = type;
                    const Described described = describe(with_replicated(), preset, chosen);
                    const vescomm_fsdp_report_t report =
                        described.spec.report(6, comm.rank(), micro_batches);
                    EXPECT_EQ(report.converted_bytes > 0,
                              type == VESCOMM_BF16 && std::string(preset) != "ddp");
                    const vescomm_fsdp_counters_t counters =
                        train(comm, described, {.micro_batches = micro_batches}).counters;
                    EXPECT_EQ(counters.allocated_bytes, report.peak_bytes);
                    EXPECT_EQ(counters.gathers, report.gathers_per_step);
                    EXPECT_EQ(counters.gather_bytes, report.gather_bytes_per_step);
                    EXPECT_EQ(counters.reduce_bytes, report.reduce_bytes_per_step);
                    EXPECT_EQ(counters.replica_bytes, report.replica_bytes_per_step);
                });
}

// Masters, gradients and two states of 4 bytes on each rank, and no gather.
TEST(Replicated, TakeTheirBytesOnEveryRank) {
    const auto report_of = [](std::uint32_t flags, int rank) {
        const std::vector<UnitModel> units{{"unit",
                                            {{.name = "matrix", .shape = {64, 16}},
                                             {.name = "norm", .shape = {160}, .flags = flags}}}};
        return describe(units).spec.report(4, rank);
    };
    for (int rank = 0; rank < 4; ++rank) {
        const vescomm_fsdp_report_t report = report_of(VESCOMM_FSDP_REPLICATED, rank);
        EXPECT_EQ(report.parameters, 64 * 16 + 160);
        EXPECT_EQ(report.shard_elements, 64 * 16 / 4 + 160);
        EXPECT_EQ(report.persistent_bytes, 16u * (64 * 16 / 4 + 160));
        EXPECT_EQ(report.slot_bytes, 64u * 16 * 4);
        EXPECT_EQ(report.replica_bytes_per_step, 160u * 4);
        EXPECT_LT(report.gather_bytes_per_step, report_of(0, rank).gather_bytes_per_step);
    }
}

TEST(Replicated, AreNotInShardsAndPieces) {
    run_ranks(3, [](Communicator &comm) {
        const Described described = describe(with_replicated());
        Engine engine(described.spec, comm);
        fill(engine);
        for (std::size_t unit = 0; unit < described.ids.size(); ++unit) {
            for (const vescomm_optimizer_piece_t &piece : engine.pieces(unit)) {
                EXPECT_EQ(piece.flags & VESCOMM_FSDP_REPLICATED, 0u);
                const auto *masters =
                    static_cast<const float *>(engine.shard(unit, VESCOMM_FSDP_MASTER).data);
                for (std::int64_t i = 0; i < piece.elements; ++i)
                    ASSERT_EQ(masters[piece.offset + i], initial(piece.parameter, piece.first + i));
            }
        }
        EXPECT_EQ(engine.shard(5, VESCOMM_FSDP_MASTER).elements, 0);
    });
}

// Trains one step after `saved` and returns all parameters.
std::vector<float> train_further(Engine &engine, const Described &described, Communicator &comm) {
    micro_batch(engine, described.ids, {}, 1, comm.rank(), comm.ranks(), true);
    engine.step();
    return read_all(engine, described.ids);
}

TEST(Replicated, AreSavedOnceAndLoadedAtAnyNumberOfRanks) {
    for (const bool replicated : {true, false}) {
        TemporaryFolder folder;
        std::vector<float> expected;
        run_ranks(4, [&](Communicator &comm) {
            const Described described =
                describe(replicated ? with_replicated() : odd_model(), "hsdp:2");
            Engine engine(described.spec, comm);
            fill(engine);
            micro_batch(engine, described.ids, {}, 0, comm.rank(), comm.ranks(), true);
            engine.step();
            engine.save(folder.path("c")).wait(60);
            const std::vector<float> seen = train_further(engine, described, comm);
            if (comm.rank() == 0) expected = seen;
        });
        for (const int ranks : {1, 2, 3, 5})
            for (const bool as_replicated : {true, false})
                run_ranks(ranks, [&](Communicator &comm) {
                    const Described described =
                        describe(as_replicated ? with_replicated() : odd_model());
                    Engine engine(described.spec, comm);
                    engine.load(folder.path("c"));
                    engine.check_replicas();
                    EXPECT_EQ(train_further(engine, described, comm), expected);
                });
    }
}

TEST(Replicated, AreComparedOverAllRanks) {
    for (const char *preset : {"zero3", "hsdp:2"})
        run_ranks(4, [&](Communicator &comm) {
            Described described = describe(with_replicated(), preset);
            ObservedSgd sgd;
            sgd.add_to(described);
            const std::uint64_t wrong = described.ids[3][1];  // the bias of block.2
            bool differs = false;
            sgd.before = [&](const vescomm_optimizer_run_t &run) {
                for (std::size_t i = 0; i < run.piece_count; ++i) {
                    const auto &piece = *vescomm_optimizer_piece_at(run.pieces, i);
                    if (differs && comm.rank() == 2 && piece.parameter == wrong)
                        run.master[piece.offset] += 1;
                }
                return 0;
            };
            Engine engine(described.spec, comm);
            fill(engine);
            for (int step = 0; step < 2; ++step) {
                differs = step == 1;
                micro_batch(engine, described.ids, {}, step, comm.rank(), comm.ranks(), true);
                engine.step();
                if (step == 0) engine.check_replicas();
            }
            try {
                engine.check_replicas();
                ADD_FAILURE() << "rank 2 differs";
            } catch (const Error &error) {
                EXPECT_EQ(error.status(), VESCOMM_ERROR_MISMATCH);
                EXPECT_NE(std::string(error.what())
                              .find("the masters of replicated parameters of unit \"block.2\" of "
                                    "rank 2 differ"),
                          std::string::npos)
                    << error.what();
            }
        });
}

TEST(Replicated, MayBeTiedAndFrozen) {
    vescomm_fsdp_spec_options_t chosen = options();
    chosen.compute_type = VESCOMM_BF16;
    const auto train = [&](int ranks, std::uint32_t flags) {
        std::vector<float> seen;
        run_ranks(ranks, [&](Communicator &comm) {
            const Described described = describe(tied_and_frozen(flags), "zero3", chosen);
            Engine engine(described.spec, comm);
            fill(engine);
            for (int step = 0; step < 2; ++step) {
                engine.begin(VESCOMM_FSDP_LAST);
                for (const std::uint64_t unit : {0, 1}) {
                    engine.pre_forward(unit);
                    engine.post_forward(unit);
                }
                for (const std::uint64_t unit : {1, 0}) {
                    engine.pre_backward(unit);
                    const std::uint64_t id = described.ids[unit][unit == 0 ? 1 : 0];
                    write_gradients(engine, {id}, step, comm.rank(), ranks);
                    engine.post_backward(unit);
                }
                engine.finish_backward();
                engine.step();
            }
            const std::vector<float> all = read_all(engine, described.ids);
            if (comm.rank() == 0) seen = all;
        });
        return seen;
    };
    const std::vector<float> one = train(1, 0);
    ASSERT_FALSE(one.empty());
    for (const int ranks : {1, 2, 3}) EXPECT_EQ(train(ranks, VESCOMM_FSDP_REPLICATED), one);
}

TEST(Replicated, AreRefusedAmongExperts) {
    vescomm_fsdp_spec_options_t chosen = options();
    chosen.expert_ranks = 2;
    Spec spec(chosen);
    const std::uint64_t unit = spec.add_unit("experts", VESCOMM_FSDP_EXPERTS);
    EXPECT_EQ(sentence_of([&] {
                  spec.add_parameter(
                      unit, {.name = "up", .shape = {4, 3}, .flags = VESCOMM_FSDP_REPLICATED});
              }),
              "vescomm_fsdp_add_parameter: parameter \"experts.up\" is replicated in a unit of "
              "experts; ranks have different experts, so add it to another unit");
}

}  // namespace
}  // namespace vescomm::fsdp::testing
