// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Kinds of parameters and of uses: tied, frozen, ignored, without a gradient, used twice; groups of
// optimizers; explicit gathers.
#include <cmath>
#include <cstdint>
#include <mutex>

#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

// SGD with a learning rate of 1 and no momentum: p -= g.
vescomm_sgd_settings_t plain_sgd() {
    vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
    settings.learning_rate = 1;
    return settings;
}

void write_constant(Engine &engine, std::uint64_t id, float value) {
    const auto [view, mode] = engine.gradient(id);
    for (std::int64_t i = 0; i < view.elements; ++i)
        write(view, i, mode == VESCOMM_FSDP_ADD ? read(view, i) + value : value);
}

std::vector<float> values_of(Engine &engine, std::uint64_t unit, std::uint64_t id) {
    engine.begin(VESCOMM_FSDP_EVAL);
    engine.pre_forward(unit);
    const vescomm_fsdp_view_t view = engine.parameter(id);
    std::vector<float> values;
    for (std::int64_t i = 0; i < view.elements; ++i) values.push_back(read(view, i));
    engine.post_forward(unit);
    return values;
}

void open_and_close(Engine &engine, std::uint64_t unit) {
    engine.pre_forward(unit);
    engine.post_forward(unit);
}

// The head shares the embedding's matrix, as in GPT-2. Both uses contribute to its gradient.
TEST(Features, TiedParametersOfTwoUnitsHaveOneGradient) {
    for (const char *preset : {"zero3", "zero1", "ddp"})
        for (const int ranks : {1, 2, 3, 5})
            run_ranks(ranks, [&](Communicator &comm) {
                vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
                options.slots = 2;
                options.gradient_slots = 3;
                Spec spec(options);
                spec.preset(preset);
                const auto embedding = spec.add_unit("embedding");
                const auto token =
                    spec.add_parameter(embedding, {.name = "token", .shape = {13, 5}});
                const auto block = spec.add_unit("block");
                const auto weight = spec.add_parameter(block, {.name = "weight", .shape = {7, 5}});
                const auto head = spec.add_unit("head");
                const auto bias = spec.add_parameter(head, {.name = "bias", .shape = {13}});
                const auto tied = spec.add_parameter(
                    head, {.name = "weight", .shape = {13, 5}, .tied_to = std::int64_t(token)});
                const std::uint64_t ids[] = {token, weight, bias};
                const auto sgd = plain_sgd();
                spec.add_group(ids, vescomm_optimizer_get_sgd(), &sgd);
                Engine engine(spec, comm);
                for (int step = 1; step <= 3; ++step) {
                    engine.begin(VESCOMM_FSDP_LAST);
                    for (const auto unit : {embedding, block, head}) open_and_close(engine, unit);
                    engine.pre_backward(head);
                    EXPECT_EQ(engine.parameter(tied).data != nullptr, true);
                    write_constant(engine, tied, 1);
                    write_constant(engine, bias, 2);
                    engine.post_backward(head);
                    engine.pre_backward(block);
                    write_constant(engine, weight, 3);
                    engine.post_backward(block);
                    engine.pre_backward(embedding);
                    write_constant(engine, token, 10);
                    engine.post_backward(embedding);
                    engine.finish_backward();
                    engine.step();
                    for (const float x : values_of(engine, embedding, token))
                        EXPECT_EQ(x, -11.0f * ranks * step);
                    EXPECT_EQ(values_of(engine, head, tied), values_of(engine, embedding, token));
                    for (const float x : values_of(engine, block, weight))
                        EXPECT_EQ(x, -3.0f * ranks * step);
                }
            });
}

// A trainer may ask for all gradients of a unit before it writes any of them. "again" and "third"
// are tied to "weight"; "fourth" and "fifth" are so in another unit.
TEST(Features, TiedParametersOfOneUnitHaveOneGradient) {
    const std::vector<std::vector<int>> orders = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    for (const std::vector<int> &order : orders)
        run_ranks(2, [&](Communicator &comm) {
            Spec spec;
            const auto unit = spec.add_unit("unit");
            const auto other = spec.add_unit("other");
            const auto weight = spec.add_parameter(unit, {.name = "weight", .shape = {13, 5}});
            const auto tied = [&](std::uint64_t to, const char *name) {
                return spec.add_parameter(
                    to, {.name = name, .shape = {13, 5}, .tied_to = std::int64_t(weight)});
            };
            const std::uint64_t ids[] = {weight, tied(unit, "again"), tied(unit, "third")};
            const std::uint64_t others[] = {tied(other, "fourth"), tied(other, "fifth")};
            const auto sgd = plain_sgd();
            spec.add_group(std::span(&weight, 1), vescomm_optimizer_get_sgd(), &sgd);
            Engine engine(spec, comm);
            for (int step = 1; step <= 2; ++step) {
                engine.begin(VESCOMM_FSDP_LAST);
                open_and_close(engine, unit);
                open_and_close(engine, other);
                engine.pre_backward(other);
                const auto [fourth, fourth_mode] = engine.gradient(others[0]);
                const auto [fifth, fifth_mode] = engine.gradient(others[1]);
                for (std::int64_t i = 0; i < fifth.elements; ++i)
                    write(fifth, i, fifth_mode == VESCOMM_FSDP_ADD ? read(fifth, i) + 100 : 100);
                for (std::int64_t i = 0; i < fourth.elements; ++i)
                    write(fourth, i, fourth_mode == VESCOMM_FSDP_ADD ? read(fourth, i) + 10 : 10);
                engine.post_backward(other);
                engine.pre_backward(unit);
                std::vector<std::pair<vescomm_fsdp_view_t, vescomm_fsdp_gradient_mode_t>> views;
                for (const std::uint64_t id : ids) views.push_back(engine.gradient(id));
                for (const int index : order) {
                    const auto &[view, mode] = views[static_cast<std::size_t>(index)];
                    for (std::int64_t i = 0; i < view.elements; ++i) {
                        const auto term = static_cast<float>(index + 1);
                        write(view, i, mode == VESCOMM_FSDP_ADD ? read(view, i) + term : term);
                    }
                }
                engine.post_backward(unit);
                engine.finish_backward();
                engine.step();
                for (const float x : values_of(engine, unit, weight))
                    EXPECT_EQ(x, -116.0f * 2 * static_cast<float>(step));
            }
        });
}

TEST(Features, FrozenAndIgnoredParametersDoNotChange) {
    run_ranks(3, [](Communicator &comm) {
        Spec spec;
        const auto unit = spec.add_unit("unit");
        const auto base = spec.add_parameter(
            unit, {.name = "base", .shape = {31, 3}, .flags = VESCOMM_FSDP_FROZEN});
        const auto ignored =
            spec.add_parameter(unit, {.name = "mask", .shape = {9}, .flags = VESCOMM_FSDP_IGNORED});
        const auto adapter = spec.add_parameter(unit, {.name = "adapter", .shape = {31, 2}});
        Engine engine(spec, comm);
        fill(engine);
        const auto frozen = values_of(engine, unit, base);
        const auto trained = values_of(engine, unit, adapter);
        engine.begin(VESCOMM_FSDP_LAST);
        open_and_close(engine, unit);
        engine.pre_backward(unit);
        write_constant(engine, adapter, 1);
        engine.post_backward(unit);
        engine.finish_backward();
        engine.step();
        EXPECT_EQ(values_of(engine, unit, base), frozen);
        EXPECT_NE(values_of(engine, unit, adapter), trained);
        const vescomm_fsdp_report_t report = spec.report(3);
        EXPECT_EQ(report.parameters, 31 * 3 + 31 * 2);
        EXPECT_LT(report.gradient_bytes, report.master_bytes);
        comm.barrier();
        EXPECT_THROW(engine.parameter(ignored), Error);
    });
}

// A gradient that only some ranks have, and one that no rank has.
TEST(Features, AMissingGradientIsZero) {
    run_ranks(3, [](Communicator &comm) {
        Spec spec;
        const auto unit = spec.add_unit("experts");
        const auto some = spec.add_parameter(unit, {.name = "some", .shape = {20}});
        const auto none = spec.add_parameter(unit, {.name = "none", .shape = {20}});
        const std::uint64_t ids[] = {some, none};
        const auto sgd = plain_sgd();
        spec.add_group(ids, vescomm_optimizer_get_sgd(), &sgd);
        Engine engine(spec, comm);
        for (int step = 1; step <= 2; ++step) {
            engine.begin(VESCOMM_FSDP_LAST);
            open_and_close(engine, unit);
            engine.pre_backward(unit);
            if (comm.rank() == 1) write_constant(engine, some, 4);
            engine.post_backward(unit);
            engine.finish_backward();
            engine.step();
        }
        EXPECT_EQ(values_of(engine, unit, some), std::vector<float>(20, -8.0f));
        EXPECT_EQ(values_of(engine, unit, none), std::vector<float>(20, 0.0f));
    });
}

// The unit goes through forward and backward three times in a micro-batch, nested once.
TEST(Features, AUnitUsedSeveralTimesAddsItsGradients) {
    run_ranks(2, [](Communicator &comm) {
        Spec spec;
        const auto unit = spec.add_unit("shared");
        const auto id = spec.add_parameter(unit, {.name = "w", .shape = {33}});
        const auto sgd = plain_sgd();
        spec.add_group(std::span(&id, 1), vescomm_optimizer_get_sgd(), &sgd);
        Engine engine(spec, comm);
        engine.begin(VESCOMM_FSDP_LAST);
        engine.pre_forward(unit);
        engine.pre_forward(unit);
        engine.post_forward(unit);
        engine.post_forward(unit);
        open_and_close(engine, unit);
        for (const float value : {1.0f, 2.0f, 4.0f}) {
            engine.pre_backward(unit);
            write_constant(engine, id, value);
            engine.post_backward(unit);
        }
        engine.finish_backward();
        engine.step();
        EXPECT_EQ(values_of(engine, unit, id), std::vector<float>(33, -14.0f));
    });
}

TEST(Features, GroupsHaveTheirOwnSettings) {
    run_ranks(3, [](Communicator &comm) {
        Spec spec;
        const auto unit = spec.add_unit("unit");
        const auto matrix = spec.add_parameter(unit, {.name = "matrix", .shape = {17, 4}});
        const auto bias = spec.add_parameter(unit, {.name = "bias", .shape = {17}});
        vescomm_adamw_settings_t decay = vescomm_adamw_settings_init();
        decay.learning_rate = 0.5;
        decay.weight_decay = 1;
        vescomm_adamw_settings_t no_decay = decay;
        no_decay.weight_decay = 0;
        const auto first =
            spec.add_group(std::span(&matrix, 1), vescomm_optimizer_get_adamw(), &decay);
        spec.add_group(std::span(&bias, 1), vescomm_optimizer_get_adamw(), &no_decay);
        Engine engine(spec, comm);
        engine.initialise([](auto, auto, std::span<float> values, auto) {
            for (float &x : values) x = 8;
        });
        const auto step_without_gradients = [&] {
            engine.begin(VESCOMM_FSDP_LAST);
            open_and_close(engine, unit);
            engine.pre_backward(unit);
            engine.post_backward(unit);
            engine.finish_backward();
            engine.step();
        };
        step_without_gradients();
        EXPECT_EQ(values_of(engine, unit, matrix), std::vector<float>(17 * 4, 4.0f));
        EXPECT_EQ(values_of(engine, unit, bias), std::vector<float>(17, 8.0f));
        decay.learning_rate = 0.25;
        engine.set_group(first, &decay);
        step_without_gradients();
        EXPECT_EQ(values_of(engine, unit, matrix), std::vector<float>(17 * 4, 3.0f));
    });
}

TEST(Features, LossScaleAndScaleDivideOut) {
    for (const int average : {0, 1})
        run_ranks(3, [&](Communicator &comm) {
            vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
            options.average = average;
            Spec spec(options);
            const auto unit = spec.add_unit("unit");
            const auto id = spec.add_parameter(unit, {.name = "w", .shape = {16}});
            const auto sgd = plain_sgd();
            spec.add_group(std::span(&id, 1), vescomm_optimizer_get_sgd(), &sgd);
            Engine engine(spec, comm);
            engine.begin(VESCOMM_FSDP_LAST);
            open_and_close(engine, unit);
            engine.pre_backward(unit);
            write_constant(engine, id, 8);
            engine.post_backward(unit);
            engine.finish_backward();
            const double sum = average != 0 ? 8 : 24;
            EXPECT_NEAR(engine.norm().first, 4 * sum, 1e-5);
            engine.scale(0.5);
            EXPECT_NEAR(engine.norm().first, 2 * sum, 1e-5);
            vescomm_fsdp_step_t step = vescomm_fsdp_step_init();
            step.loss_scale = 4;
            EXPECT_NEAR(engine.step(step).norm, sum / 2, 1e-5);
            for (const float x : values_of(engine, unit, id)) EXPECT_NEAR(x, -sum / 8, 1e-5);
        });
}

TEST(Features, UnshardGathersBeforeTheUnitIsOpened) {
    run_ranks(3, [](Communicator &comm) {
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.order = VESCOMM_FSDP_EXPLICIT;
        options.slots = 3;
        const Described described = describe(odd_model(), "zero3", options);
        Engine engine(described.spec, comm);
        fill(engine);
        engine.begin(VESCOMM_FSDP_EVAL);
        engine.unshard(1);
        engine.unshard(3);
        EXPECT_EQ(read(engine.parameter(described.ids[3][0]), 5), initial(described.ids[3][0], 5));
        engine.pre_forward(1);
        engine.post_forward(1);
        EXPECT_EQ(read(engine.parameter(described.ids[1][1]), 7), initial(described.ids[1][1], 7));
        EXPECT_EQ(engine.counters().gathers, 2u);
        engine.reshard(3);
        engine.reshard(1);
    });
}

// The engine has a communicator of its own, whose counters include the gathers.
TEST(Features, ProgressAndCountersAreThoseOfTheEngine) {
    for (const char *preset : {"zero3", "hsdp:2"})
        run_ranks(4, [&](Communicator &comm) {
            const Described described = describe(odd_model(), preset);
            Engine engine(described.spec, comm);
            ASSERT_NE(engine.comm(), comm.get());
            const auto operations = [&] {
                vescomm_comm_counters_t counters = vescomm_comm_counters_init();
                check(vescomm_comm_get_counters(engine.comm(), &counters));
                return counters.operations;
            };
            const std::uint64_t before = operations();
            engine.begin(VESCOMM_FSDP_EVAL);
            engine.pre_forward(0);
            engine.progress();
            engine.post_forward(0);
            EXPECT_GT(operations(), before);
        });
}

// A recorded order predicts a model whose units are used in another order than declared.
TEST(Features, ARecordedOrderIsFollowedAndRecordedAgain) {
    run_ranks(2, [](Communicator &comm) {
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.order = VESCOMM_FSDP_RECORDED;
        const Described described = describe(odd_model(), "zero3", options);
        Engine engine(described.spec, comm);
        fill(engine);
        const auto pass = [&](std::initializer_list<int> units) {
            engine.begin(VESCOMM_FSDP_EVAL);
            for (const int unit : units) open_and_close(engine, unit);
        };
        pass({4, 0, 2});
        pass({4, 0, 2});
        EXPECT_EQ(engine.counters().deviations, 0u);
        pass({4, 2, 0});
        EXPECT_EQ(engine.counters().deviations, 1u);
        pass({4, 2, 0});
        EXPECT_EQ(engine.counters().deviations, 1u);
    });
}

// All units are recomputed before the first backward pass, as by a checkpoint around the loss.
void recompute_first(Engine &engine, const Described &described, const Communicator &comm,
                     bool begins) {
    engine.begin(VESCOMM_FSDP_LAST);
    const auto forward = [&] {
        for (std::size_t unit = 0; unit < described.ids.size(); ++unit) {
            engine.pre_forward(unit);
            engine.post_forward(unit);
        }
    };
    forward();
    if (begins) engine.begin_backward();
    forward();
    for (std::size_t unit = described.ids.size(); unit-- > 0;) {
        engine.pre_backward(unit);
        write_gradients(engine, described.ids[unit], 0, comm.rank(), comm.ranks());
        engine.post_backward(unit);
    }
    engine.finish_backward();
    engine.step();
}

TEST(Features, BeginBackwardMakesForwardPassesRecomputations) {
    const std::vector<float> expected =
        train_on(1, odd_model(), "zero3", vescomm_fsdp_spec_options_init(), {.steps = 1})
            .parameters;
    run_ranks(2, [&](Communicator &comm) {
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.order = VESCOMM_FSDP_RECORDED;
        const Described described = describe(odd_model(), "zero3", options);
        Engine engine(described.spec, comm);
        fill(engine);
        recompute_first(engine, described, comm, true);
        EXPECT_EQ(read_all(engine, described.ids), expected);
        EXPECT_EQ(engine.counters().deviations, 0u);
    });
    run_ranks(1, [](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        fill(engine);
        // Without it each unit was used twice, and gradient slots wait for the second use.
        try {
            recompute_first(engine, described, comm, false);
            ADD_FAILURE() << "there are slots for all units";
        } catch (const Error &error) {
            EXPECT_NE(std::string(error.what()).find("vescomm_fsdp_begin_backward()"),
                      std::string::npos)
                << error.what();
        }
        engine.reset();
        const auto refused = [&] {
            EXPECT_EQ(vescomm_fsdp_begin_backward(engine.get()), VESCOMM_ERROR_INVALID_ARGUMENT);
            engine.reset();
        };
        refused();  // no micro-batch is running
        engine.begin(VESCOMM_FSDP_EVAL);
        refused();
    });
}

// A program with a newer header has longer pieces, and one that does not say so gets an error.
TEST(Features, PiecesHaveTheSizeOfTheCallersStruct) {
    run_ranks(1, [](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        struct Newer {
            vescomm_optimizer_piece_t known = vescomm_optimizer_piece_init();
            std::uint64_t newer = 7;
        };
        const auto pieces = engine.pieces(1);
        std::vector<Newer> longer(pieces.size());
        for (Newer &piece : longer) piece.known.struct_size = sizeof(Newer);
        std::size_t count = 0;
        check(vescomm_fsdp_pieces(engine.get(), 1, &longer[0].known, longer.size(), &count));
        ASSERT_EQ(count, pieces.size());
        for (std::size_t i = 0; i < count; ++i) {
            const auto *piece = vescomm_optimizer_piece_at(&longer[0].known, i);
            EXPECT_EQ(piece, &longer[i].known);
            EXPECT_EQ(piece->parameter, pieces[i].parameter);
            EXPECT_EQ(piece->offset, pieces[i].offset);
            EXPECT_EQ(longer[i].newer, 0u);
        }
        ASSERT_GT(count, 1u);
        longer[1].known.struct_size = 0;
        EXPECT_EQ(vescomm_fsdp_pieces(engine.get(), 1, &longer[0].known, longer.size(), &count),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
    });
}

// Shards are aligned, and their pieces cover every parameter once.
TEST(Features, ShardsAreAlignedAndCoverTheModel) {
    for (const int ranks : {1, 2, 5, 7}) {
        std::vector<std::vector<int>> owners;
        for (const UnitModel &unit : odd_model())
            for (const ParameterSpec &parameter : unit.parameters)
                owners.emplace_back(static_cast<std::size_t>(elements(parameter)), 0);
        std::mutex mutex;
        run_ranks(ranks, [&](Communicator &comm) {
            const Described described = describe(odd_model());
            Engine engine(described.spec, comm);
            fill(engine);
            for (std::size_t unit = 0; unit < described.ids.size(); ++unit) {
                for (const auto role : {VESCOMM_FSDP_MASTER, VESCOMM_FSDP_GRADIENT})
                    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(engine.shard(unit, role).data) % 64,
                              0u);
                EXPECT_EQ(engine.shard(unit, VESCOMM_FSDP_STATE, 1).elements,
                          engine.shard(unit, VESCOMM_FSDP_GRADIENT).elements);
                const vescomm_fsdp_view_t master = engine.shard(unit, VESCOMM_FSDP_MASTER);
                const std::scoped_lock lock(mutex);
                for (const auto &piece : engine.pieces(unit))
                    for (std::int64_t i = 0; i < piece.elements; ++i) {
                        ++owners[piece.parameter][piece.first + i];
                        EXPECT_EQ(read(master, piece.offset + i),
                                  initial(piece.parameter, piece.first + i));
                    }
            }
        });
        for (const std::vector<int> &of_parameter : owners)
            EXPECT_EQ(of_parameter, std::vector<int>(of_parameter.size(), 1));
    }
}

// Random values from the key do not depend on the number of ranks.
TEST(Features, KeysDependOnSeedAndName) {
    std::vector<std::vector<float>> found;
    for (const std::uint64_t seed : {1, 1, 2})
        for (const int ranks : {1, 3}) {
            vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
            options.seed = seed;
            std::vector<float> values;
            run_ranks(ranks, [&](Communicator &comm) {
                const Described described = describe(odd_model(), "zero3", options);
                Engine engine(described.spec, comm);
                engine.initialise(
                    [](auto, std::int64_t first, std::span<float> piece, std::uint64_t key) {
                        for (std::size_t i = 0; i < piece.size(); ++i)
                            piece[i] = static_cast<float>((key + first + i) % 8191);
                    });
                const auto seen = read_all(engine, described.ids);
                if (comm.rank() == 0) values = seen;
            });
            found.push_back(values);
        }
    for (const int same : {1, 2, 3}) EXPECT_EQ(found[same], found[0]);
    EXPECT_NE(found[4], found[0]);
    EXPECT_EQ(found[5], found[4]);
}

// A type of its own for one parameter: another bucket of the same unit, in the same memory. On
// several nodes, sums of both use the same partial sums.
TEST(Features, AUnitMayHaveParametersOfSeveralTypes) {
    for (const std::vector<int> &nodes : std::vector<std::vector<int>>{
             {0}, {0, 0}, {0, 0, 0}, {0, 1}, {0, 0, 1}, {0, 1, 0, 1}, {0, 0, 1, 1, 2}}) {
        const auto ranks = static_cast<int>(nodes.size());
        const auto body = [&](Communicator &comm) {
            vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
            options.compute_type = VESCOMM_BF16;
            Spec spec(options);
            const auto unit = spec.add_unit("unit");
            const auto weight = spec.add_parameter(unit, {.name = "weight", .shape = {400, 30}});
            const auto norm =
                spec.add_parameter(unit, {.name = "norm", .shape = {9000}, .type = VESCOMM_F32});
            const std::uint64_t ids[] = {weight, norm};
            const auto sgd = plain_sgd();
            spec.add_group(ids, vescomm_optimizer_get_sgd(), &sgd);
            Engine engine(spec, comm);
            for (int step = 1; step <= 10; ++step) {
                engine.begin(VESCOMM_FSDP_LAST);
                open_and_close(engine, unit);
                engine.pre_backward(unit);
                EXPECT_EQ(engine.parameter(weight).type, VESCOMM_BF16);
                EXPECT_EQ(engine.parameter(norm).type, VESCOMM_F32);
                write_constant(engine, weight, 1);
                write_constant(engine, norm, 2);
                engine.post_backward(unit);
                engine.finish_backward();
                engine.step();
                const auto sum = static_cast<float>(step * ranks);
                EXPECT_EQ(values_of(engine, unit, weight), std::vector<float>(12'000, -sum));
                EXPECT_EQ(values_of(engine, unit, norm), std::vector<float>(9'000, -2 * sum));
            }
        };
        run_ranks(ranks, body, nodes);
    }
}

}  // namespace
}  // namespace vescomm::fsdp::testing
