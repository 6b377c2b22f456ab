// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Misuse of the engine: an error that names event and unit, on all ranks, and a reset after which
// training goes on as if nothing had happened.
#include <functional>
#include <limits>

#include "fsdp/observed_sgd.h"
#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

// Runs a call that must fail, and returns its sentence. The timeout of the communicators is far
// above the duration of the test, so a timeout is a hang.
template <typename Call>
std::string sentence_of(Call &&call) {
    try {
        call();
    } catch (const Error &error) {
        EXPECT_NE(error.status(), VESCOMM_ERROR_TIMEOUT) << error.what();
        EXPECT_NE(error.status(), VESCOMM_ERROR_INTERNAL) << error.what();
        return error.what();
    }
    return "";
}

void expect_words(const std::string &sentence, const std::vector<const char *> &words) {
    for (const char *word : words)
        EXPECT_NE(sentence.find(word), std::string::npos) << word << " in: " << sentence;
}

const std::vector<float> &undisturbed() {
    static const Outcome outcome =
        train_on(1, odd_model(), "zero3", vescomm_fsdp_spec_options_init(), {.steps = 2});
    return outcome.parameters;
}

// Trains one step, lets `wrong` fail on all ranks, resets, trains another step, and compares with a
// training without failure. Every rank gets an error with all words.
void expect_misuse(const std::function<void(Engine &, const Described &, int rank)> &wrong,
                   const std::vector<const char *> &words, const std::string &preset = "zero3",
                   vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init()) {
    for (const int ranks : {1, 3})
        run_ranks(ranks, [&](Communicator &comm) {
            const Described described = describe(odd_model(), preset, options);
            Engine engine(described.spec, comm);
            fill(engine);
            micro_batch(engine, described.ids, {}, 0, comm.rank(), ranks, true);
            engine.step();
            comm.barrier();
            expect_words(sentence_of([&] { wrong(engine, described, comm.rank()); }), words);
            // Everything fails with the first error until reset().
            expect_words(sentence_of([&] { engine.begin(VESCOMM_FSDP_LAST); }), words);
            engine.reset();
            micro_batch(engine, described.ids, {}, 1, comm.rank(), ranks, true);
            engine.step();
            EXPECT_EQ(read_all(engine, described.ids), undisturbed());
        });
}

TEST(Misuse, OpensMoreUnitsThanSlots) {
    expect_misuse(
        [](Engine &engine, const Described &, int) {
            engine.begin(VESCOMM_FSDP_LAST);
            for (const std::uint64_t unit : {0, 1, 2}) engine.pre_forward(unit);
        },
        {"pre_forward", "\"block.1\"", "slots", "\"embedding\", \"block.0\"", "3 or more"});
}

TEST(Misuse, OpensMoreBackwardPassesThanGradientSlots) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.slots = 4;
    expect_misuse(
        [](Engine &engine, const Described &described, int) {
            engine.begin(VESCOMM_FSDP_LAST);
            for (std::uint64_t unit = 0; unit < described.ids.size(); ++unit) {
                engine.pre_forward(unit);
                engine.post_forward(unit);
            }
            for (const std::uint64_t unit : {5, 4, 3}) engine.pre_backward(unit);
        },
        {"pre_backward", "\"block.2\"", "gradient slots", "\"block.3\", \"head\""}, "zero3",
        options);
}

// One event that the states do not permit, and words of its sentence.
struct Wrong {
    const char *name;
    std::function<void(Engine &, const Described &)> events;
    std::vector<const char *> words;
};

TEST(Misuse, EventsInTheWrongOrder) {
    const auto forward = [](Engine &engine, std::uint64_t unit) {
        engine.pre_forward(unit);
        engine.post_forward(unit);
    };
    const auto begin = [](Engine &engine) { engine.begin(VESCOMM_FSDP_LAST); };
    const std::vector<Wrong> all = {
        {"forward without begin",
         [](Engine &e, const Described &) { e.pre_forward(0); },
         {"pre_forward of unit \"embedding\"", "vescomm_fsdp_begin()"}},
        {"no such unit",
         [&](Engine &e, const Described &) {
             begin(e);
             e.pre_forward(6);
         },
         {"pre_forward of unit 6", "there are 6"}},
        {"close without open",
         [&](Engine &e, const Described &) {
             begin(e);
             e.post_forward(1);
         },
         {"post_forward of unit \"block.0\"", "not open for forward"}},
        {"backward without forward",
         [&](Engine &e, const Described &) {
             begin(e);
             e.pre_backward(2);
         },
         {"pre_backward of unit \"block.1\"", "forward 0 times"}},
        {"second backward",
         [&](Engine &e, const Described &) {
             begin(e);
             forward(e, 2);
             e.pre_backward(2);
             e.post_backward(2);
             e.pre_backward(2);
         },
         {"pre_backward of unit \"block.1\"", "backward 2 times"}},
        {"post_backward without pre_backward",
         [&](Engine &e, const Described &) {
             begin(e);
             forward(e, 2);
             e.post_backward(2);
         },
         {"post_backward of unit \"block.1\"", "not open for backward"}},
        {"step without gradients",
         [](Engine &e, const Described &) { e.step(); },
         {"step", "gradients of the step are not complete"}},
        {"norm without gradients",
         [](Engine &e, const Described &) { e.norm(); },
         {"norm", "gradients of the step are not complete"}},
        {"finish with an open unit",
         [&](Engine &e, const Described &) {
             begin(e);
             e.pre_forward(3);
             e.finish_backward();
         },
         {"finish_backward", "\"block.2\" is still open for forward"}},
        {"begin during backward",
         [&](Engine &e, const Described &) {
             begin(e);
             forward(e, 2);
             e.pre_backward(2);
             e.post_backward(2);
             begin(e);
         },
         {"begin", "finish_backward"}},
        {"reshard without unshard",
         [&](Engine &e, const Described &) {
             begin(e);
             forward(e, 2);
             e.reshard(2);
         },
         {"reshard of unit \"block.1\"", "not held"}},
        {"parameter of a closed unit",
         [&](Engine &e, const Described &d) {
             begin(e);
             forward(e, 1);
             e.parameter(d.ids[1][0]);
         },
         {"parameter", "\"block.0\"", "\"up\"", "not open"}},
        {"gradient before backward",
         [&](Engine &e, const Described &d) {
             begin(e);
             e.pre_forward(1);
             e.gradient(d.ids[1][1]);
         },
         {"gradient", "\"block.0\"", "\"bias\"", "not open for backward"}},
        {"backward in evaluation",
         [&](Engine &e, const Described &) {
             e.begin(VESCOMM_FSDP_EVAL);
             forward(e, 1);
             e.pre_backward(1);
         },
         {"pre_backward of unit \"block.0\"", "EVAL"}},
        {"NO_SYNC without memory",
         [](Engine &e, const Described &) { e.begin(VESCOMM_FSDP_NO_SYNC); },
         {"begin", "keep_gradients"}},
        {"gradients after an evaluation before the step",
         [](Engine &e, const Described &d) {
             micro_batch(e, d.ids, {}, 0, 0, 1, true);
             e.begin(VESCOMM_FSDP_EVAL);
             e.begin(0);
         },
         {"begin", "vescomm_fsdp_step() first"}},
        {"a learning rate that is not a number",
         [&](Engine &e, const Described &d) {
             micro_batch(e, d.ids, {}, 0, 0, 1, true);
             vescomm_fsdp_step_t step = vescomm_fsdp_step_init();
             step.learning_rate_scale = std::numeric_limits<double>::quiet_NaN();
             e.step(step);
         },
         {"step", "learning_rate_scale"}},
        {"a learning rate that f32 does not hold",
         [&](Engine &e, const Described &d) {
             micro_batch(e, d.ids, {}, 0, 0, 1, true);
             vescomm_fsdp_step_t step = vescomm_fsdp_step_init();
             step.learning_rate_scale = 1e308;
             e.step(step);
         },
         {"step", "learning_rate_scale", "f32"}},
    };
    for (const Wrong &wrong : all) {
        SCOPED_TRACE(wrong.name);
        expect_misuse([&](Engine &e, const Described &d, int) { wrong.events(e, d); }, wrong.words);
    }
}

// Only the last rank fails; the others wait for it in a gather.
TEST(Misuse, OfOneRankEndsTheWaitsOfAll) {
    for (const char *preset : {"zero3", "hsdp:2"})
        for (const int ranks : {2, 4})
            run_ranks(ranks, [&](Communicator &comm) {
                const Described described = describe(odd_model(), preset);
                Engine engine(described.spec, comm);
                fill(engine);
                const std::string sentence = sentence_of([&] {
                    engine.begin(VESCOMM_FSDP_LAST);
                    if (comm.rank() == ranks - 1) engine.post_backward(3);
                    micro_batch(engine, described.ids, {}, 0, comm.rank(), ranks, true);
                });
                expect_words(sentence, {"post_backward of unit \"block.2\"", "not open"});
                engine.reset();
                micro_batch(engine, described.ids, {}, 0, comm.rank(), ranks, true);
                engine.step();
                micro_batch(engine, described.ids, {}, 1, comm.rank(), ranks, true);
                engine.step();
                EXPECT_EQ(read_all(engine, described.ids), undisturbed());
            });
}

TEST(Misuse, ARankThatDoesNotInitialiseIsNamed) {
    run_ranks(3, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        if (comm.rank() == 0) fill(engine);
        expect_words(sentence_of([&] {
                         micro_batch(engine, described.ids, {}, 0, comm.rank(), 3, true);
                         engine.step();
                     }),
                     {"rank 0 has called vescomm_fsdp_initialise() 1 times", "rank 1 0 times"});
        engine.reset();
        expect_words(sentence_of([&] { engine.begin(VESCOMM_FSDP_LAST); }),
                     {"rank 1", "older than those of other ranks", "not called on all ranks"});
        fill(engine);
        for (const int step : {0, 1}) {
            micro_batch(engine, described.ids, {}, step, comm.rank(), 3, true);
            engine.step();
        }
        EXPECT_EQ(read_all(engine, described.ids), undisturbed());
    });
}

// The last rank skips a unit. The others wait in its gather, and the rank in the next one.
TEST(Misuse, ARankThatSkipsAUnitIsNamed) {
    for (const char *preset : {"zero3", "ddp", "hsdp:2"})
        for (const int skipped : {0, 3})
            run_ranks(4, [&](Communicator &comm) {
                const Described described = describe(odd_model(), preset);
                Engine engine(described.spec, comm);
                fill(engine);
                const std::string sentence = sentence_of([&] {
                    engine.begin(VESCOMM_FSDP_LAST);
                    for (int unit = 0; unit < 6; ++unit) {
                        if (comm.rank() == 3 && unit == skipped) continue;
                        engine.pre_forward(unit);
                        engine.post_forward(unit);
                    }
                    for (int unit = 6; unit-- > 0;) {
                        engine.pre_backward(unit);
                        engine.post_backward(unit);
                    }
                    engine.finish_backward();
                    engine.step();
                });
                EXPECT_NE(sentence, "") << preset << ' ' << skipped;
                // Rank 3 finds the error itself if it comes to a backward pass without a forward
                // pass first.
                const bool differs = sentence.find("announced different") != std::string::npos ||
                                     sentence.find("differ") != std::string::npos;
                const bool alone = sentence.find("forward 0 times") != std::string::npos;
                EXPECT_TRUE(differs || alone) << sentence;
                engine.reset();
                micro_batch(engine, described.ids, {}, 0, comm.rank(), 4, true);
                engine.step();
                micro_batch(engine, described.ids, {}, 1, comm.rank(), 4, true);
                engine.step();
                EXPECT_EQ(read_all(engine, described.ids), undisturbed());
            });
}

// The error of a fast rank reaches others while they are still in the step before. It must not be
// half done.
TEST(Misuse, AStepIsCompleteOnAllRanksOrOnNone) {
    run_ranks(4, [](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        for (int repetition = 0; repetition < 10; ++repetition) {
            fill(engine);
            std::vector<float> before = read_all(engine, described.ids);
            micro_batch(engine, described.ids, {}, 0, comm.rank(), 4, true);
            sentence_of([&] {
                engine.step();
                if (comm.rank() == repetition % 4) engine.post_forward(1);
                engine.begin(VESCOMM_FSDP_LAST);
                engine.pre_forward(0);
            });
            engine.reset();
            const std::vector<float> after = read_all(engine, described.ids);
            EXPECT_NE(after, before);
            // All ranks own a part of every unit, so a rank without the step would differ.
            std::vector<float> others(after.size());
            check(vescomm_all_reduce(comm.get(), after.data(), others.data(),
                                     static_cast<std::int64_t>(after.size()), VESCOMM_F32,
                                     VESCOMM_MAX, nullptr, nullptr, nullptr));
            EXPECT_EQ(others, after);
            EXPECT_EQ(engine.counters().steps, 1);
        }
    });
}

TEST(Misuse, ArgumentsOfAStepThatDifferAreAnError) {
    run_ranks(3, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        fill(engine);
        const std::vector<float> before = read_all(engine, described.ids);
        micro_batch(engine, described.ids, {}, 0, comm.rank(), 3, true);
        vescomm_fsdp_step_t step = vescomm_fsdp_step_init();
        step.max_norm = comm.rank() == 1 ? 2 : 1;
        expect_words(sentence_of([&] { engine.step(step); }),
                     {"max_norm of vescomm_fsdp_step() is 1 on rank 0 and 2 on rank 1"});
        engine.reset();
        EXPECT_EQ(read_all(engine, described.ids), before);
        micro_batch(engine, described.ids, {}, 0, comm.rank(), 3, true);
        engine.scale(comm.rank() == 2 ? 0.5 : 1);
        expect_words(sentence_of([&] { engine.step(); }),
                     {"factor of vescomm_fsdp_scale() is 1 on rank 0 and 0.5 on rank 2"});
        engine.reset();
        EXPECT_EQ(read_all(engine, described.ids), before);
    });
}

TEST(Misuse, ANegativeLimitOfTheNormIsAnError) {
    run_ranks(1, [&](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        fill(engine);
        micro_batch(engine, described.ids, {}, 0, 0, 1, true);
        vescomm_fsdp_step_t step = vescomm_fsdp_step_init();
        step.max_norm = -1;
        expect_words(sentence_of([&] { engine.step(step); }), {"max_norm is -1", "INFINITY"});
    });
}

TEST(Misuse, SpecificationsThatDifferAreAnError) {
    run_ranks(3, [&](Communicator &comm) {
        std::vector<UnitModel> units = odd_model();
        if (comm.rank() == 2) units[3].parameters[1].shape = {65};
        const Described described = describe(units);
        expect_words(sentence_of([&] { Engine(described.spec, comm); }),
                     {"ranks 0 and 2", "unit 3", "\"block.2\""});
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.slots = 2 + comm.rank() / 2;
        const Described other = describe(odd_model(), "zero3", options);
        expect_words(sentence_of([&] { Engine(other.spec, comm); }),
                     {"slots, which is 2 on rank 0", "ranks 0 and 2"});
        // A rank that cannot plan reports it.
        const Described divided = describe(odd_model(), comm.rank() == 1 ? "hsdp:2" : "zero3");
        expect_words(sentence_of([&] { Engine(divided.spec, comm); }),
                     {comm.rank() == 1 ? "multiple of 2" : "rank 1 cannot create the engine"});
        comm.barrier();
    });
}

TEST(Misuse, AnExceptionOfTheTrainerIsFollowedByReset) {
    for (const char *preset : {"zero3", "zero1", "ddp"})
        run_ranks(2, [&](Communicator &comm) {
            const Described described = describe(odd_model(), preset);
            Engine engine(described.spec, comm);
            fill(engine);
            micro_batch(engine, described.ids, {}, 0, comm.rank(), 2, true);
            engine.step();
            comm.barrier();
            // The reset of the first rank ends the events of the other one.
            sentence_of([&] {
                engine.begin(VESCOMM_FSDP_LAST);
                for (const std::uint64_t unit : {0, 1}) {
                    engine.pre_forward(unit);
                    engine.post_forward(unit);
                }
                engine.pre_backward(1);
                write_gradients(engine, described.ids[1], 7, 0, 1);
            });
            engine.reset();
            micro_batch(engine, described.ids, {}, 1, comm.rank(), 2, true);
            engine.step();
            EXPECT_EQ(read_all(engine, described.ids), undisturbed());
        });
}

// Gradients that are not finite on one rank: the step is skipped on all ranks.
TEST(Misuse, AStepThatIsNotFiniteIsSkippedOnAllRanks) {
    for (const float poison :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
        for (const double max_norm : {0.0, 1.0})
            run_ranks(3, [&](Communicator &comm) {
                const Described described = describe(odd_model());
                Engine engine(described.spec, comm);
                fill(engine);
                const std::vector<float> before = read_all(engine, described.ids);
                engine.begin(VESCOMM_FSDP_LAST);
                engine.pre_forward(2);
                engine.post_forward(2);
                engine.pre_backward(2);
                if (comm.rank() == 1) {
                    std::vector<float> bad(64, poison);
                    engine.push_gradient(described.ids[2][1], bad.data(), VESCOMM_F32);
                }
                engine.post_backward(2);
                engine.finish_backward();
                EXPECT_FALSE(engine.norm().second);
                vescomm_fsdp_step_t step = vescomm_fsdp_step_init();
                step.max_norm = max_norm;
                step = engine.step(step);
                EXPECT_EQ(step.skipped, 1);
                EXPECT_EQ(step.step, 0);
                EXPECT_EQ(engine.counters().skipped, 1u);
                EXPECT_EQ(read_all(engine, described.ids), before);
                for (const int number : {0, 1}) {
                    micro_batch(engine, described.ids, {}, number, comm.rank(), 3, true);
                    EXPECT_EQ(engine.step().skipped, 0);
                }
                EXPECT_EQ(read_all(engine, described.ids), undisturbed());
            });
}

// Wrong pointers have no effect.
TEST(Misuse, NullArgumentsDoNothing) {
    run_ranks(1, [](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        EXPECT_EQ(vescomm_fsdp_parameter(engine.get(), 0, nullptr), VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(vescomm_fsdp_begin(nullptr, 0), VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(vescomm_fsdp_step(engine.get(), nullptr, nullptr),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
        int queue = 0;
        EXPECT_EQ(vescomm_fsdp_pre_forward(engine.get(), 0, &queue),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
        vescomm_fsdp_view_t view{};
        EXPECT_EQ(vescomm_fsdp_parameter(engine.get(), 0, &view), VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(std::string(vescomm_get_last_error()).find("struct_size"), std::string::npos);
        fill(engine);
        EXPECT_EQ(read_all(engine, described.ids).size(),
                  static_cast<std::size_t>(described.spec.report(1).parameters));
    });
}

TEST(Misuse, AGradientWithoutBytesHasNoEffect) {
    run_ranks(2, [](Communicator &comm) {
        const Described described = describe(odd_model());
        Engine engine(described.spec, comm);
        engine.begin(VESCOMM_FSDP_LAST);
        engine.pre_forward(1);
        engine.post_forward(1);
        engine.pre_backward(1);
        expect_words(
            sentence_of([&] { engine.push_gradient(described.ids[1][0], nullptr, VESCOMM_F32); }),
            {"data is NULL", "768 elements", "\"block.0.up\""});
        // It has no elements.
        engine.push_gradient(described.ids[1].back(), nullptr, VESCOMM_F32);
        engine.post_backward(1);
        engine.finish_backward();
        engine.step();
    });
}

// Settings that are replaced while an optimizer reads them were silently wrong values.
TEST(Misuse, CallsOfAnOptimizerThatChangeTheEngine) {
    for (const int calling : {0, -1})
        run_ranks(3, [&](Communicator &comm) {
            Described described = describe(odd_model());
            ObservedSgd sgd;
            sgd.add_to(described);
            Engine engine(described.spec, comm);
            fill(engine);
            const auto take_step = [&] {
                micro_batch(engine, described.ids, {}, 0, comm.rank(), 3, true);
                engine.step();
                return read_all(engine, described.ids);
            };
            const std::vector<float> first = take_step();
            fill(engine);
            const vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
            int calls = 0;
            if (calling == -1 || calling == comm.rank())
                sgd.before = [&](const vescomm_optimizer_run_t &) {
                    vescomm_fsdp_t *handle = engine.get();
                    vescomm_fsdp_step_t step = vescomm_fsdp_step_init();
                    const vescomm_status_t refused[] = {
                        vescomm_fsdp_set_group(handle, 0, &settings),
                        vescomm_fsdp_begin(handle, 0),
                        vescomm_fsdp_step(handle, &step, nullptr),
                        vescomm_fsdp_reset(handle),
                        vescomm_fsdp_initialise(
                            handle, [](auto...) { return 0; }, nullptr),
                        vescomm_fsdp_free(handle),
                    };
                    for (const vescomm_status_t status : refused)
                        EXPECT_EQ(status, VESCOMM_ERROR_INVALID_ARGUMENT);
                    expect_words(vescomm_get_last_error(),
                                 {"vescomm_fsdp_free", "an optimizer", "called it"});
                    EXPECT_EQ(engine.counters().steps, 1);  // functions that read are permitted
                    ++calls;
                    return 0;
                };
            EXPECT_EQ(take_step(), first);
            EXPECT_EQ(calls > 0, static_cast<bool>(sgd.before));
        });
}

TEST(Misuse, TwoParametersWithOneFullName) {
    Spec spec;
    const auto a = spec.add_unit("a"), b = spec.add_unit("a.b");
    spec.add_parameter(a, {.name = "b.c", .shape = {3}});
    spec.add_parameter(b, {.name = "b.c", .shape = {3}});
    expect_words(sentence_of([&] { spec.add_parameter(b, {.name = "c", .shape = {3}}); }),
                 {"\"a.b.c\"", "\"b.c\" of unit \"a\"", "unique"});
    expect_words(sentence_of([&] { spec.add_parameter(a, {.name = "b.c", .shape = {3}}); }),
                 {"\"a.b.c\"", "unique"});
}

}  // namespace
}  // namespace vescomm::fsdp::testing
