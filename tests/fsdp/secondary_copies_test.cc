// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Preset hpz:K and the option reshard_ranks: secondary copies of gathered parameters.
#include "fsdp/checkpoint/checkpoint_ranks.h"
#include "fsdp/hpz.h"
#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

using Nodes = std::vector<int>;

// Gradients whose sums depend on the order of ranks, and on the gathered parameters.
void write_fractions(Engine &engine, const std::vector<std::uint64_t> &ids, int rank, int step) {
    for (const std::uint64_t id : ids) {
        const vescomm_fsdp_view_t parameter = engine.parameter(id);
        const auto [view, mode] = engine.gradient(id);
        for (std::int64_t i = 0; i < view.elements; ++i) {
            const float term = 0.1f * read(parameter, i) +
                               static_cast<float>((i * 7 + rank * 13 + step * 5) % 31) / 29.0f;
            write(view, i, mode == VESCOMM_FSDP_ADD ? read(view, i) + term : term);
        }
    }
}

// Returns all parameters after each step.
std::vector<std::vector<float>> train_fractions(int ranks, const std::string &preset,
                                                const vescomm_fsdp_spec_options_t &options,
                                                const Training &training, const Nodes &nodes = {}) {
    std::vector<std::vector<float>> seen;
    run_ranks(
        ranks,
        [&](Communicator &comm) {
            const Described described = describe(odd_model(), preset, options);
            Engine engine(described.spec, comm);
            fill(engine);
            const auto units = described.ids.size();
            for (int step = 0; step < training.steps; ++step) {
                for (int micro = 0; micro < training.micro_batches; ++micro) {
                    engine.begin(micro + 1 == training.micro_batches ? VESCOMM_FSDP_LAST : 0);
                    for (std::size_t unit = 0; unit < units; ++unit) {
                        engine.pre_forward(unit);
                        engine.post_forward(unit);
                    }
                    for (std::size_t unit = units; unit-- > 0;) {
                        engine.pre_backward(unit);
                        if (training.recompute) engine.pre_forward(unit);
                        write_fractions(engine, described.ids[unit], comm.rank(), step + micro);
                        if (training.recompute) engine.post_forward(unit);
                        engine.post_backward(unit);
                    }
                    engine.finish_backward();
                }
                engine.step();
                const std::vector<float> all = read_all(engine, described.ids);
                if (comm.rank() == 0) seen.push_back(all);
            }
        },
        nodes);
    return seen;
}

TEST(SecondaryCopies, HaveTheBitsOfZero3) {
    const Training training{.steps = 3, .micro_batches = 2};
    for (const int ranks : {2, 3, 4, 6})
        for (const int slots : {1, 2, 3}) {
            const auto expected = train_fractions(ranks, "zero3", options_of(slots), training);
            ASSERT_EQ(expected.size(), 3u);
            for (int size = 1; size <= ranks; ++size) {
                if (ranks % size != 0) continue;
                EXPECT_EQ(train_fractions(ranks, hpz(size), options_of(slots), training), expected)
                    << ranks << " ranks, hpz:" << size << ", " << slots << " slots";
            }
        }
}

TEST(SecondaryCopies, HaveTheBitsOfZero3InEveryOrderAndType) {
    for (const int order : {0, 1, 2})
        for (const vescomm_type_t type : {VESCOMM_F32, VESCOMM_BF16}) {
            vescomm_fsdp_spec_options_t chosen = options_of(2, type);
            chosen.order = order;
            chosen.average = order == 1 ? 1 : 0;
            const Training training{.steps = 2, .micro_batches = 2, .recompute = true};
            EXPECT_EQ(train_fractions(4, hpz(2), chosen, training),
                      train_fractions(4, "zero3", chosen, training))
                << "order " << order << ", type " << type;
        }
}

TEST(SecondaryCopies, HaveTheBitsOfZero3InEightBits) {
    for (const vescomm_type_t type : {VESCOMM_I8, VESCOMM_F8E4M3})
        for (const int slots : {1, 3}) {
            vescomm_fsdp_spec_options_t chosen = options_of(slots, VESCOMM_BF16);
            chosen.gather_type = type;
            chosen.reduce_type = type;
            const Training training{.steps = 2, .micro_batches = 2, .recompute = slots == 1};
            EXPECT_EQ(train_fractions(6, hpz(3), chosen, training),
                      train_fractions(6, "zero3", chosen, training));
        }
}

// Groups that are nodes, parts of nodes, and spread over nodes.
TEST(SecondaryCopies, HaveTheBitsOfZero3OnSeveralNodes) {
    const Training training{.steps = 2, .micro_batches = 2};
    for (const Nodes &nodes :
         {Nodes{0, 0, 1, 1}, Nodes{0, 1, 0, 1}, Nodes{0, 0, 0, 1}, Nodes{0, 0, 0, 0, 1, 2}}) {
        const auto ranks = static_cast<int>(nodes.size());
        const auto expected = train_fractions(ranks, "zero3", options_of(), training, nodes);
        EXPECT_EQ(train_fractions(ranks, hpz(2), options_of(), training, nodes), expected);
        EXPECT_EQ(train_fractions(ranks, hpz(1), options_of(), training, nodes), expected);
    }
}

TEST(SecondaryCopies, AreWithinTheShardGroupsOfHsdp) {
    vescomm_fsdp_spec_options_t chosen = options_of();
    chosen.reshard_ranks = 2;
    const Training training{.steps = 2, .micro_batches = 2};
    EXPECT_EQ(train_fractions(8, "hsdp:4", chosen, training),
              train_fractions(8, "hsdp:4", options_of(), training));
    EXPECT_EQ(train_fractions(4, "zero3", chosen, training),
              train_fractions(4, hpz(2), options_of(), training));
}

// Units whose gathers wait for each other: more units open than in a usual order, units that are
// gathered and never used, another order on the way back.
TEST(SecondaryCopies, AreRightInAnyOrderOfGathers) {
    run_ranks(4, [](Communicator &comm) {
        const Described described = describe(odd_model(), "hpz:2", options_of(4));
        Engine engine(described.spec, comm);
        fill(engine);
        const auto expect = [&](std::size_t unit) {
            for (const std::uint64_t id : described.ids[unit]) {
                const vescomm_fsdp_view_t view = engine.parameter(id);
                for (std::int64_t i = 0; i < view.elements; ++i)
                    ASSERT_EQ(read(view, i), initial(id, i));
            }
        };
        for (int time = 0; time < 3; ++time) {
            engine.begin(VESCOMM_FSDP_EVAL);
            engine.unshard(5);
            engine.unshard(2);
            engine.pre_forward(0);
            engine.progress();
            expect(2);
            expect(0);
            engine.reshard(5);
            engine.unshard(3);
            engine.pre_forward(5);
            expect(5);
            engine.post_forward(5);
            engine.post_forward(0);
            engine.reshard(2);
            engine.reshard(3);
            engine.pre_forward(3);
            expect(3);
            engine.post_forward(3);
        }
        // Freed while gathers of prefetched units run.
        engine.begin(VESCOMM_FSDP_EVAL);
        engine.pre_forward(0);
        engine.post_forward(0);
    });
}

// A rank reads a unit while the others wait for it in their next event. The copy of the unit is
// filled only then: rank 3 starts last. All requests exist already.
TEST(SecondaryCopies, ARankReadsAnUnshardedUnitAlone) {
    constexpr double timeout_seconds = 20;
    for (const Nodes &nodes : {Nodes{}, Nodes{0, 0, 1, 1}, Nodes{0, 1, 0, 1}})
        run_ranks(
            4,
            [&](Communicator &comm) {
                const Described described = describe(odd_model(), "hpz:2", options_of());
                Engine engine(described.spec, comm);
                fill(engine);
                const std::uint64_t id = described.ids[1][0];
                read_all(engine, described.ids);
                fill(engine);
                engine.begin(VESCOMM_FSDP_EVAL);
                if (comm.rank() == 3) comm.barrier();
                engine.unshard(1);
                if (comm.rank() != 3) comm.barrier();
                if (comm.rank() == 1) {
                    EXPECT_EQ(read(engine.parameter(id), 5), initial(id, 5));
                }
                engine.pre_forward(0);
                engine.post_forward(0);
                EXPECT_EQ(read(engine.parameter(id), 5), initial(id, 5));
                engine.reshard(1);
            },
            nodes, timeout_seconds);
}

void expect_counters(const vescomm_fsdp_counters_t &counters, const vescomm_fsdp_counters_t &before,
                     const vescomm_fsdp_report_t &report) {
    EXPECT_EQ(counters.allocated_bytes, report.peak_bytes);
    EXPECT_EQ(counters.gathers - before.gathers, report.gathers_per_step);
    EXPECT_EQ(counters.gather_bytes - before.gather_bytes, report.gather_bytes_per_step);
    EXPECT_EQ(counters.group_gather_bytes - before.group_gather_bytes,
              report.group_gather_bytes_per_step);
    EXPECT_EQ(counters.reduce_bytes - before.reduce_bytes, report.reduce_bytes_per_step);
}

TEST(SecondaryCopies, AllocateAndSendWhatTheReportSays) {
    for (const int size : {1, 2, 3, 6})
        for (const int micro_batches : {1, 2})
            for (const int slots : {1, 3})
                for (const vescomm_type_t gather_type : {vescomm_type_t{0}, VESCOMM_I8})
                    run_ranks(6, [&](Communicator &comm) {
                        vescomm_fsdp_spec_options_t chosen = options_of(slots, VESCOMM_BF16);
                        chosen.gradient_slots = slots;
                        chosen.gather_type = gather_type;
                        const Described described = describe(odd_model(), hpz(size), chosen);
                        const vescomm_fsdp_report_t report =
                            described.spec.report(comm.ranks(), comm.rank(), micro_batches);
                        EXPECT_EQ(report.gather_ranks, size);
                        EXPECT_EQ(report.shard_ranks, 6);
                        EXPECT_EQ(report.secondary_bytes > 0, size < 6);
                        Engine engine(described.spec, comm);
                        fill(engine);
                        for (int step = 0; step < 2; ++step) {
                            const vescomm_fsdp_counters_t before = engine.counters();
                            for (int micro = 0; micro < micro_batches; ++micro)
                                micro_batch(engine, described.ids, {}, step, comm.rank(),
                                            comm.ranks(), micro + 1 == micro_batches);
                            engine.step();
                            // The report is that of steady steps.
                            if (step > 0) expect_counters(engine.counters(), before, report);
                        }
                    });
}

// One rank more in a group: 1/K of the model for each rank, and further gathers from one rank more.
TEST(SecondaryCopies, HaveTheBytesOfTheirDefinition) {
    Spec spec(options_of(2, VESCOMM_BF16));
    for (int unit = 0; unit < 8; ++unit) {
        spec.add_unit("unit." + std::to_string(unit));
        spec.add_parameter(unit, {.name = "w", .shape = {1024, 64}});
    }
    const double model = 8 * 1024 * 64;
    const double zero3 = static_cast<double>(spec.report(16).gather_bytes_per_step);
    for (const int size : {2, 4, 8}) {
        spec.preset(hpz(size));
        const vescomm_fsdp_report_t report = spec.report(16);
        // With a converted shard for each of two slots.
        EXPECT_EQ(static_cast<double>(report.secondary_bytes),
                  2 * model / size + 2 * 2 * 1024 * 64 / 16);
        const double gathers = static_cast<double>(report.gathers_per_step) / 8;
        EXPECT_EQ(static_cast<double>(report.group_gather_bytes_per_step),
                  gathers * 2 * model * (size - 1) / size);
        EXPECT_LT(static_cast<double>(report.gather_bytes_per_step), 1.07 * zero3);
    }
}

// With a node for each group only the first gather after a change sends anything to another node.
TEST(SecondaryCopies, KeepFurtherGathersWithinTheNode) {
    const std::vector<UnitModel> units = {{"a", {{.name = "w", .shape = {600, 256}}}},
                                          {"b", {{.name = "w", .shape = {500, 256}}}},
                                          {"c", {{.name = "w", .shape = {400, 256}}}}};
    constexpr double model_bytes = 4.0 * 1500 * 256;
    run_ranks(4,
              [&](Communicator &comm) {
                  const Described described = describe(units, "hpz:2", options_of(1));
                  Engine engine(described.spec, comm);
                  const auto sent = [&](bool change) {
                      vescomm_comm_counters_t before = vescomm_comm_counters_init();
                      vescomm_comm_counters_t after = before;
                      check(vescomm_comm_get_counters(engine.comm(), &before));
                      if (change) fill(engine);
                      engine.begin(VESCOMM_FSDP_EVAL);
                      for (std::uint64_t unit = 0; unit < 3; ++unit) {
                          engine.pre_forward(unit);
                          engine.post_forward(unit);
                      }
                      comm.barrier();
                      check(vescomm_comm_get_counters(engine.comm(), &after));
                      return static_cast<double>(after.bytes_sent - before.bytes_sent);
                  };
                  sent(true);
                  EXPECT_NEAR(sent(true), model_bytes / 4, model_bytes / 50);
                  EXPECT_LT(sent(false), model_bytes / 50);
              },
              {0, 0, 1, 1});
}

TEST(SecondaryCopies, AreFilledAgainAfterEveryChangeOfMasters) {
    checkpoint::testing_support::TemporaryFolder folder;
    run_ranks(4, [&](Communicator &comm) {
        const Described described = describe(odd_model(), "hpz:2", options_of(1));
        Engine engine(described.spec, comm);
        const auto expect_all = [&](float value) {
            for (const float x : read_all(engine, described.ids)) ASSERT_EQ(x, value);
        };
        const auto set_all = [&](float value) {
            engine.initialise([&](auto, auto, std::span<float> values, auto) {
                for (float &x : values) x = value;
            });
        };
        expect_all(0);
        set_all(3);
        expect_all(3);
        engine.save(folder.path("c")).wait(60);
        set_all(4);
        expect_all(4);
        engine.load(folder.path("c"));
        expect_all(3);
        engine.begin(VESCOMM_FSDP_LAST);
        engine.pre_forward(2);
        comm.barrier();  // a reset ends the events of other ranks
        engine.reset();
        expect_all(3);
        // A step that is skipped: the copies keep their values.
        engine.begin(VESCOMM_FSDP_LAST);
        engine.pre_forward(0);
        engine.post_forward(0);
        engine.pre_backward(0);
        const auto view = engine.gradient(described.ids[0][0]).first;
        for (std::int64_t i = 0; i < view.elements; ++i) write(view, i, HUGE_VALF);
        engine.post_backward(0);
        engine.finish_backward();
        EXPECT_EQ(engine.step().skipped, 1);
        expect_all(3);
    });
}

TEST(SecondaryCopies, AreRefusedWithASentence) {
    const auto error_of = [](const std::string &preset, int reshard_ranks, int ranks,
                             int keep_gathered = 0) {
        vescomm_fsdp_spec_options_t chosen = options_of();
        chosen.reshard_ranks = reshard_ranks;
        chosen.keep_gathered = keep_gathered;
        try {
            describe(odd_model(), preset, chosen).spec.report(ranks);
        } catch (const Error &error) {
            return std::string(error.what());
        }
        return std::string();
    };
    const auto expect = [](const std::string &text, const char *part) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
    };
    expect(error_of("hpz:4", 0, 6), "the axes need a multiple of 4 ranks, and there are 6");
    expect(error_of("zero3", 4, 6), "reshard_ranks is 4; it must divide the 6 ranks that shard");
    expect(error_of("hsdp:2", 4, 4), "reshard_ranks is 4; it must divide the 2 ranks that shard");
    expect(error_of("zero3", -1, 6), "reshard_ranks is -1; it must be at least 0");
    expect(error_of("hpz:2", 3, 6), "reshard_ranks is 3, and axis \"group\" has 2 ranks");
    for (const char *preset : {"zero1", "zero2", "ddp"})
        expect(error_of(preset, 1, 4), "units stay gathered until the step");
    expect(error_of("hpz:2", 0, 4, 1), "units stay gathered until the step");
    expect(error_of("hpz:0", 0, 4), "needs a number of ranks of at least 1");
    EXPECT_EQ(error_of("hpz:2", 2, 4), "");
    EXPECT_EQ(error_of("hpz:4", 0, 4), "");
    run_ranks(2, [](Communicator &comm) {
        vescomm_fsdp_spec_options_t chosen = options_of();
        chosen.reshard_ranks = comm.rank();
        const Described described = describe(odd_model(), "zero3", chosen);
        EXPECT_THROW(Engine(described.spec, comm), Error);
    });
}

// The mesh of the preset, from its axes.
TEST(SecondaryCopies, HaveAxes) {
    Spec spec(options_of(1));
    spec.add_unit("a");
    spec.add_unit("b");
    spec.add_parameter(0, {.name = "w", .shape = {64}});
    check(vescomm_fsdp_add_axis(spec.get(), "nodes", 0, VESCOMM_FSDP_REPLICATE, VESCOMM_FSDP_SHARD,
                                VESCOMM_FSDP_SHARD));
    check(vescomm_fsdp_add_axis(spec.get(), "node", 2, VESCOMM_FSDP_SHARD, VESCOMM_FSDP_SHARD,
                                VESCOMM_FSDP_SHARD));
    EXPECT_EQ(spec.report(8).gather_ranks, 2);
    EXPECT_EQ(spec.report(8).shard_ranks, 8);
    // The groups have the ranks along both axes.
    check(vescomm_fsdp_add_axis(spec.get(), "socket", 2, VESCOMM_FSDP_SHARD, VESCOMM_FSDP_SHARD,
                                VESCOMM_FSDP_SHARD));
    EXPECT_EQ(spec.report(8).gather_ranks, 4);
    EXPECT_EQ(spec.report(8).shard_ranks, 8);
    EXPECT_EQ(vescomm_fsdp_add_axis(spec.get(), "more", 2, VESCOMM_FSDP_REPLICATE,
                                    VESCOMM_FSDP_SHARD, VESCOMM_FSDP_SHARD),
              VESCOMM_ERROR_UNSUPPORTED);
}

}  // namespace
}  // namespace vescomm::fsdp::testing
