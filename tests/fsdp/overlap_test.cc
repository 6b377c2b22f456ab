// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// A step starts the first gathers of the next forward between its updates, with the same bits.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "fsdp/observed_sgd.h"
#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

std::uint64_t unit_of(const Described &described, std::uint64_t parameter) {
    std::uint64_t unit = 0;
    while (std::ranges::count(described.ids[unit], parameter) == 0) ++unit;
    return unit;
}

std::vector<std::uint64_t> gathers_of(const Engine &engine) {
    std::vector<std::uint64_t> gathers;
    for (std::uint64_t unit = 0; unit < odd_model().size(); ++unit)
        gathers.push_back(engine.unit_counters(unit).gathers);
    return gathers;
}

// One micro-batch in an order of units.
void pass(Engine &engine, const Described &described, const std::vector<std::uint64_t> &units,
          int step, int rank, int ranks) {
    engine.begin(VESCOMM_FSDP_LAST);
    for (const std::uint64_t unit : units) {
        engine.pre_forward(unit);
        engine.post_forward(unit);
    }
    for (std::size_t i = units.size(); i-- > 0;) {
        engine.pre_backward(units[i]);
        write_gradients(engine, described.ids[units[i]], step, rank, ranks);
        engine.post_backward(units[i]);
    }
    engine.finish_backward();
}

struct Case {
    const char *name;
    const char *preset;
    vescomm_fsdp_order_t order;
    int slots;
    std::vector<std::uint64_t> units;  // in the order of forward
    std::size_t first;  // units that a step starts to gather
};

const std::vector<Case> &cases() {
    static const std::vector<Case> all = {
        {"declared", "zero3", VESCOMM_FSDP_DECLARED, 0, {0, 1, 2, 3, 4, 5}, 2},
        {"one slot", "zero3", VESCOMM_FSDP_DECLARED, 1, {0, 1, 2, 3, 4, 5}, 1},
        {"recorded", "zero3", VESCOMM_FSDP_RECORDED, 3, {4, 1, 0, 3, 2, 5}, 3},
        {"explicit", "zero3", VESCOMM_FSDP_EXPLICIT, 3, {0, 1, 2, 3, 4, 5}, 0},
        {"kept", "zero1", VESCOMM_FSDP_DECLARED, 0, {0, 1, 2, 3, 4, 5}, 6},
        {"replicated", "ddp", VESCOMM_FSDP_RECORDED, 0, {5, 4, 3, 2, 1, 0}, 6},
    };
    return all;
}

// The gather of a unit starts after its own update, and before the updates of all later units.
TEST(Overlap, AStepGathersUnitsBetweenItsUpdates) {
    for (const Case &one : cases())
        for (const int ranks : {1, 2, 3, 5})
            run_ranks(ranks, [&](Communicator &comm) {
                SCOPED_TRACE(one.name);
                vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
                options.order = one.order;
                options.slots = one.slots;
                Described described = describe(odd_model(), one.preset, options);
                ObservedSgd sgd;
                sgd.add_to(described);
                Engine engine(described.spec, comm);
                fill(engine);
                pass(engine, described, one.units, 0, comm.rank(), ranks);
                engine.step();
                pass(engine, described, one.units, 1, comm.rank(), ranks);

                const std::vector<std::uint64_t> before = gathers_of(engine);
                std::vector<std::uint64_t> updated;
                const auto expected = [&] {
                    std::vector<std::uint64_t> gathers = before;
                    for (std::size_t i = 0; i < one.first; ++i)
                        if (std::ranges::count(updated, one.units[i]) > 0) ++gathers[one.units[i]];
                    return gathers;
                };
                sgd.before = [&](const vescomm_optimizer_run_t &run) {
                    const std::uint64_t unit = unit_of(described, run.pieces->parameter);
                    // Units without elements on this rank have no run.
                    std::vector<std::uint64_t> order(one.units.begin(),
                                                     one.units.begin() + one.first);
                    for (std::uint64_t other = 0; other < one.units.size(); ++other)
                        if (std::ranges::count(order, other) == 0) order.push_back(other);
                    updated.assign(order.begin(), std::ranges::find(order, unit));
                    EXPECT_EQ(gathers_of(engine), expected());
                    return 0;
                };
                engine.step();
                sgd.before = nullptr;
                updated = one.units;
                EXPECT_EQ(gathers_of(engine), expected());
                EXPECT_EQ(engine.step_summary().early_gathers, one.first);

                engine.begin(VESCOMM_FSDP_LAST);
                engine.pre_forward(one.units[0]);
                const std::uint64_t again = one.first == 0 ? 1 : 0;
                EXPECT_EQ(engine.unit_counters(one.units[0]).gathers,
                          expected()[one.units[0]] + again);
                engine.post_forward(one.units[0]);
            });
}

// Trains on a number of ranks, with an evaluation after each step.
std::vector<std::vector<float>> curve(int ranks, const char *preset,
                                      const vescomm_fsdp_spec_options_t &options) {
    std::vector<std::vector<float>> seen;
    run_ranks(ranks, [&](Communicator &comm) {
        const Described described = describe(odd_model(), preset, options);
        Engine engine(described.spec, comm);
        fill(engine);
        for (int step = 0; step < 4; ++step) {
            micro_batch(engine, described.ids, {}, step, comm.rank(), ranks, true);
            vescomm_fsdp_step_t arguments = vescomm_fsdp_step_init();
            arguments.max_norm = step % 2;
            engine.step(arguments);
            if (step % 3 == 2) continue;
            std::vector<float> parameters = read_all(engine, described.ids);
            if (comm.rank() == 0) seen.push_back(std::move(parameters));
        }
    });
    return seen;
}

TEST(Overlap, HasTheBitsOfAStepWithoutGathers) {
    for (const vescomm_type_t gather_type : {VESCOMM_TYPE_DEFAULT, VESCOMM_I8})
        for (const int ranks : {1, 2, 3, 5})
            for (const char *preset : {"ddp", "zero1", "zero2", "zero3"}) {
                vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
                options.gather_type = gather_type;
                options.compute_type = ranks % 2 != 0 ? VESCOMM_BF16 : VESCOMM_F32;
                options.order = VESCOMM_FSDP_EXPLICIT;
                const auto alone = curve(ranks, preset, options);
                for (const vescomm_fsdp_order_t order :
                     {VESCOMM_FSDP_DECLARED, VESCOMM_FSDP_RECORDED}) {
                    options.order = order;
                    options.slots = order == VESCOMM_FSDP_DECLARED ? 3 : 2;
                    options.partner_copy = ranks > 1 && preset != std::string("ddp") ? 1 : 0;
                    EXPECT_EQ(curve(ranks, preset, options), alone)
                        << preset << ' ' << ranks << " ranks, order " << order;
                }
            }
}

// The norm is added up unit by unit, as their sums end. Here a unit has gradients of an earlier
// micro-batch only, and one has none.
TEST(Overlap, TheNormHasTheGradientsOfAllMicroBatches) {
    for (const char *preset : {"zero3", "zero2", "zero1", "ddp", "hsdp:2"})
        for (const int ranks : {1, 2, 3, 4}) {
            if (ranks % 2 != 0 && preset == std::string("hsdp:2")) continue;
            run_ranks(ranks, [&](Communicator &comm) {
                const Described described = describe(odd_model(), preset);
                Engine engine(described.spec, comm);
                fill(engine);
                const std::vector<std::uint64_t> used[] = {{0, 1, 2, 4, 5}, {0, 2, 4, 5}};
                for (int micro = 0; micro < 2; ++micro) {
                    engine.begin(micro == 1 ? VESCOMM_FSDP_LAST : 0);
                    for (const std::uint64_t unit : used[micro]) {
                        engine.pre_forward(unit);
                        engine.post_forward(unit);
                    }
                    for (std::size_t i = used[micro].size(); i-- > 0;) {
                        const std::uint64_t unit = used[micro][i];
                        engine.pre_backward(unit);
                        write_gradients(engine, described.ids[unit], micro, comm.rank(), ranks);
                        engine.post_backward(unit);
                    }
                    engine.finish_backward();
                }
                // Whole numbers: the sum of squares is exact.
                double squares = 0;
                for (const auto &[unit, micro_batches] : std::vector<std::pair<std::uint64_t, int>>{
                         {0, 2}, {1, 1}, {2, 2}, {4, 2}, {5, 2}})
                    for (std::size_t i = 0; i < described.ids[unit].size(); ++i) {
                        const std::uint64_t id = described.ids[unit][i];
                        const std::int64_t count = elements(odd_model()[unit].parameters[i]);
                        for (std::int64_t element = 0; element < count; ++element) {
                            double sum = 0;
                            for (int micro = 0; micro < micro_batches; ++micro)
                                sum += total_gradient(id, element, micro);
                            squares += sum * sum;
                        }
                    }
                EXPECT_EQ(engine.norm().first, std::sqrt(squares)) << preset << ' ' << ranks;
                EXPECT_EQ(engine.step().norm, std::sqrt(squares)) << preset << ' ' << ranks;
            });
        }
}

// A step that is skipped starts the same gathers, of parameters that have not changed. Units that
// stay gathered are not gathered again.
TEST(Overlap, ASkippedStepGathersTheParametersOfBefore) {
    for (const Case &one : cases())
        for (const int ranks : {1, 2, 3, 5})
            run_ranks(ranks, [&](Communicator &comm) {
                SCOPED_TRACE(one.name);
                vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
                options.order = one.order;
                options.slots = one.slots;
                const Described described = describe(odd_model(), one.preset, options);
                const auto train = [&](bool with_nan) {
                    Engine engine(described.spec, comm);
                    fill(engine);
                    pass(engine, described, one.units, 0, comm.rank(), ranks);
                    engine.step();
                    if (with_nan) {
                        engine.begin(VESCOMM_FSDP_LAST);
                        for (const std::uint64_t unit : one.units) {
                            engine.pre_forward(unit);
                            engine.post_forward(unit);
                        }
                        for (std::size_t i = one.units.size(); i-- > 0;) {
                            engine.pre_backward(one.units[i]);
                            for (const std::uint64_t id : described.ids[one.units[i]]) {
                                const auto view = engine.gradient(id).first;
                                for (std::int64_t e = 0; e < view.elements; ++e)
                                    write(view, e, 1.0f);
                                if (i == 2 && comm.rank() == ranks - 1 && view.elements > 0)
                                    write(view, 0, std::numeric_limits<float>::quiet_NaN());
                            }
                            engine.post_backward(one.units[i]);
                        }
                        engine.finish_backward();
                        EXPECT_EQ(engine.step().skipped, 1);
                        const vescomm_fsdp_step_summary_t summary = engine.step_summary();
                        EXPECT_EQ(summary.skipped, 1);
                        EXPECT_TRUE(std::isnan(summary.norm));
                        const bool kept = one.first == one.units.size();
                        EXPECT_EQ(summary.early_gathers, kept ? 0 : one.first);
                    }
                    pass(engine, described, one.units, 1, comm.rank(), ranks);
                    EXPECT_EQ(engine.step().skipped, 0);
                    return read_all(engine, described.ids);
                };
                EXPECT_EQ(train(true), train(false));
            });
}

// The values of all parameters after some steps.
std::vector<float> undisturbed(int steps) {
    std::vector<float> seen;
    run_ranks(1, [&](Communicator &comm) {
        Described described = describe(odd_model());
        ObservedSgd sgd;
        sgd.add_to(described);
        Engine engine(described.spec, comm);
        fill(engine);
        for (int step = 0; step < steps; ++step) {
            micro_batch(engine, described.ids, {}, step, 0, 1, true);
            engine.step();
        }
        seen = read_all(engine, described.ids);
    });
    return seen;
}

// The communicator breaks on one rank before its first update. Its update is complete nevertheless,
// and reset() completes those of ranks that had not begun theirs.
TEST(Overlap, ABrokenGatherDoesNotInterruptTheUpdate) {
    const std::vector<float> after_two = undisturbed(2), after_three = undisturbed(3);
    for (const char *preset : {"zero3", "zero1"})
        for (const int ranks : {2, 3, 5})
            run_ranks(ranks, [&](Communicator &comm) {
                vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
                options.slots = 3;
                Described described = describe(odd_model(), preset, options);
                ObservedSgd sgd;
                sgd.add_to(described);
                Engine engine(described.spec, comm);
                fill(engine);
                micro_batch(engine, described.ids, {}, 0, comm.rank(), ranks, true);
                engine.step();
                micro_batch(engine, described.ids, {}, 1, comm.rank(), ranks, true);
                if (comm.rank() == 1)
                    sgd.before = [&](const vescomm_optimizer_run_t &) {
                        vescomm_comm_abort(engine.comm(), "the test breaks it");
                        return 0;
                    };
                try {
                    engine.step();
                    EXPECT_EQ(engine.step_summary().step, 2);
                } catch (const Error &error) {
                    EXPECT_NE(comm.rank(), 1) << error.what();
                }
                comm.barrier();  // reset() would end a step of other ranks
                if (comm.rank() == 1) {
                    EXPECT_THROW(engine.begin(VESCOMM_FSDP_EVAL), Error);
                }
                sgd.before = nullptr;
                engine.reset();
                EXPECT_EQ(read_all(engine, described.ids), after_two);
                micro_batch(engine, described.ids, {}, 2, comm.rank(), ranks, true);
                EXPECT_EQ(engine.step().step, 3);
                EXPECT_EQ(read_all(engine, described.ids), after_three);
            });
}

// An optimizer fails on one rank after the step has started gathers.
TEST(Overlap, AfterAFailedOptimizerTheEngineCanBeInitialisedAgain) {
    const std::vector<float> after_one = undisturbed(1);
    for (const int ranks : {1, 2, 3})
        run_ranks(ranks, [&](Communicator &comm) {
            Described described = describe(odd_model());
            ObservedSgd sgd;
            sgd.add_to(described);
            Engine engine(described.spec, comm);
            fill(engine);
            micro_batch(engine, described.ids, {}, 0, comm.rank(), ranks, true);
            int runs = 0;
            if (comm.rank() == ranks - 1)
                sgd.before = [&](const vescomm_optimizer_run_t &) { return ++runs == 3 ? 1 : 0; };
            try {
                engine.step();
                EXPECT_NE(comm.rank(), ranks - 1);
            } catch (const Error &error) {
                EXPECT_NE(std::string(error.what()).find("observed sgd"), std::string::npos)
                    << error.what();
            }
            comm.barrier();
            sgd.before = nullptr;
            engine.reset();
            fill(engine);
            micro_batch(engine, described.ids, {}, 0, comm.rank(), ranks, true);
            engine.step();
            EXPECT_EQ(read_all(engine, described.ids), after_one);
        });
}

// Nothing of the steps before is left in states of optimizers: the usual way on after a load that
// failed.
TEST(Overlap, AnInitialisedEngineTrainsAsANewOne) {
    run_ranks(2, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        const auto train = [&](Engine &engine) {
            fill(engine);
            for (int step = 0; step < 2; ++step) {
                micro_batch(engine, described.ids, {}, step, comm.rank(), 2, true);
                EXPECT_EQ(engine.step().step, step + 1);
            }
            return read_all(engine, described.ids);
        };
        Engine engine(described.spec, comm);
        const std::vector<float> of_new = train(engine);
        EXPECT_EQ(train(engine), of_new);
    });
}

// Gathers that a step has started read the masters, and end before these change.
TEST(Overlap, InitialValuesReplaceThoseThatAStepGathers) {
    for (const char *preset : {"zero3", "zero1"})
        for (const int ranks : {1, 2, 3, 5})
            run_ranks(ranks, [&](Communicator &comm) {
                const Described described = describe(odd_model(), preset);
                Engine engine(described.spec, comm);
                fill(engine);
                const std::vector<float> initial = read_all(engine, described.ids);
                micro_batch(engine, described.ids, {}, 0, comm.rank(), ranks, true);
                engine.step();
                fill(engine);
                EXPECT_EQ(read_all(engine, described.ids), initial);
                micro_batch(engine, described.ids, {}, 0, comm.rank(), ranks, true);
                engine.step();
                // The engine is freed during the gathers.
            });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
