// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Specifications that are refused: structs with members of a newer header, models that no
// checkpoint can hold, and specifications that differ between ranks. And some that must not be.
#include <functional>
#include <limits>

#include "fsdp/refused.h"
#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

void expect_word(const std::string &sentence, const std::string &word) {
    EXPECT_NE(sentence.find(word), std::string::npos) << word << " in: " << sentence;
}

TEST(Spec, RefusesReservedMembers) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.reserved = 1;
    expect_word(sentence_of([&] { Spec spec(options); }), "reserved of the options is 1");
    options = vescomm_fsdp_spec_options_init();
    options.reserved2 = 2;
    expect_word(sentence_of([&] { Spec spec(options); }), "reserved2 of the options is 2");
    Spec spec;
    const std::uint64_t unit = spec.add_unit("unit");
    const auto add = [&](std::uint32_t reserved, std::uint32_t reserved_2) {
        vescomm_fsdp_parameter_t parameter = vescomm_fsdp_parameter_init();
        parameter.name = "w";
        parameter.reserved = reserved;
        parameter.reserved_2 = reserved_2;
        std::uint64_t id = 0;
        return sentence_of(
            [&] { check(vescomm_fsdp_add_parameter(spec.get(), unit, &parameter, &id)); });
    };
    expect_word(add(3, 0), "reserved of parameter \"unit.w\" is 3");
    expect_word(add(0, 4), "reserved_2 of parameter \"unit.w\" is 4");
    expect_word(add(0, 0), "no error");
}

// Options of the planner with one more member than this library knows.
struct NewerPlannerOptions {
    vescomm_planner_options_t known = vescomm_planner_options_init();
    std::uint64_t added = 0;
};

TEST(Spec, RefusesOptionsOfThePlannerThatItDoesNotKnow) {
    NewerPlannerOptions newer;
    newer.known.struct_size = sizeof newer;
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.planner = &newer.known;
    expect_word(sentence_of([&] { Spec spec(options); }), "no error");
    newer.added = 1;
    expect_word(sentence_of([&] { Spec spec(options); }), "planner is a struct of");
    newer.known.struct_size = 0;
    expect_word(sentence_of([&] { Spec spec(options); }), "struct_size of planner is 0");
}

TEST(Spec, HasTheOptionsOfAnOlderPlanner) {
    vescomm_planner_options_t planner = vescomm_planner_options_init();
    planner.mode = VESCOMM_PLANNER_UNIFORM;
    planner.struct_size = offsetof(vescomm_planner_options_t, mode) + sizeof planner.mode;
    planner.search_steps = -1;  // an older header does not have it
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    options.planner = &planner;
    Spec spec(options);
    spec.add_parameter(spec.add_unit("unit"), {.name = "w", .shape = {7}});
    expect_word(sentence_of([&] { spec.report(2); }), "no error");
}

TEST(Spec, RefusesParametersThatNoCheckpointCanHold) {
    Spec spec;
    const std::uint64_t unit = spec.add_unit("unit");
    const auto add = [&](std::uint64_t to, const ParameterSpec &parameter) {
        return sentence_of([&] { spec.add_parameter(to, parameter); });
    };
    constexpr std::size_t longest = 896 - std::string_view("unit.").size();
    expect_word(add(unit, {.name = std::string(longest + 1, 'n'), .shape = {3}}), "897 bytes");
    expect_word(add(unit, {.name = "\xff", .shape = {3}}), "no UTF-8");
    expect_word(add(unit, {.name = "deep", .shape = std::vector<std::int64_t>(65, 1)}),
                "65 dimensions");
    expect_word(add(unit, {.name = std::string(longest, 'n'), .shape = {3}}), "no error");
    expect_word(add(unit, {.name = "\xc3\xbc", .shape = {3}}), "no error");
    expect_word(add(unit, {.name = "deepest", .shape = std::vector<std::int64_t>(64, 1)}),
                "no error");
    // Checkpoints do not have it.
    expect_word(add(unit, {.name = "\xfe", .shape = {3}, .flags = VESCOMM_FSDP_IGNORED}),
                "no error");
}

TEST(Spec, RefusesNamesThatNoLineCanHold) {
    Spec spec;
    const auto add_unit = [&](const char *name) {
        return sentence_of([&] { spec.add_unit(name); });
    };
    expect_word(add_unit("\xe9"), "the name of a unit, \"\xe9\", is no UTF-8");
    expect_word(add_unit("a\nb"), "the name of a unit, \"a\\x0ab\", has a control character");
    expect_word(add_unit("\x7f"), "control character");
    expect_word(add_unit("\xc3\xbc \"q\" \\"), "no error");
    const auto add = [&](const char *name, std::uint32_t flags) {
        return sentence_of(
            [&] { spec.add_parameter(0, {.name = name, .shape = {3}, .flags = flags}); });
    };
    for (const std::uint32_t flags : {0U, VESCOMM_FSDP_IGNORED})
        expect_word(add("w\x02", flags), "w\\x02\", has a control character");
    expect_word(add("w", 0), "no error");
}

TEST(Spec, RefusesAParameterWithoutAWholeName) {
    Spec spec;
    const std::uint64_t unit = spec.add_unit("unit");
    vescomm_fsdp_parameter_t parameter = vescomm_fsdp_parameter_init();
    parameter.name = "w";
    parameter.struct_size = 8;
    std::uint64_t id = 0;
    const std::string sentence =
        sentence_of([&] { check(vescomm_fsdp_add_parameter(spec.get(), unit, &parameter, &id)); });
    expect_word(sentence, "struct_size of parameter is 8");
}

// The shape is not read before its length is known to be possible.
TEST(Spec, RefusesMoreDimensionsThanATensorCanHave) {
    vescomm_fsdp_spec_t *spec = nullptr;
    ASSERT_EQ(vescomm_fsdp_spec_create(nullptr, &spec), VESCOMM_OK);
    std::uint64_t unit = 0, id = 0;
    ASSERT_EQ(vescomm_fsdp_add_unit(spec, "unit", 0, &unit), VESCOMM_OK);
    const std::int64_t shape[] = {1};
    vescomm_fsdp_parameter_t parameter = vescomm_fsdp_parameter_init();
    parameter.name = "weight";
    parameter.shape = shape;
    for (const std::int32_t dimensions : {65, 1000000, INT32_MAX}) {
        parameter.dimensions = dimensions;
        EXPECT_EQ(vescomm_fsdp_add_parameter(spec, unit, &parameter, &id),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(std::string(vescomm_get_last_error())
                      .find(std::to_string(dimensions) + " dimensions; at most 64"),
                  std::string::npos)
            << vescomm_get_last_error();
    }
    vescomm_fsdp_spec_free(spec);
}

TEST(Spec, RefusesNamesWithControlCharacters) {
    Spec spec;
    for (const char *name : {"a\nb", "a\x7f", "a\xc2\x85 b", "\xc2\x9f"})
        EXPECT_THROW(spec.add_unit(name), Error) << name;
    spec.add_unit("a\xc2\xa0 b\xc3\xa9");  // a space that does not break, and an accent
}

TEST(Spec, LimitsTheNumberOfRanks) {
    Spec spec;
    spec.add_parameter(spec.add_unit("unit"), {.name = "w", .shape = {64, 3}});
    constexpr std::int32_t most = 1 << 20;
    expect_word(sentence_of([&] { spec.report(most); }), "no error");
    for (const std::int32_t ranks : {0, most + 1, std::numeric_limits<std::int32_t>::max()}) {
        const std::string words =
            "the number of ranks is " + std::to_string(ranks) + "; it must be";
        expect_word(sentence_of([&] { spec.report(ranks); }), words);
        expect_word(sentence_of([&] { spec.recommend(ranks, 1, 1000); }), words);
    }
    expect_word(sentence_of([&] { spec.preset("hsdp:1048576"); }), "no error");
    for (const char *preset : {"hsdp:1048577", "hpz:99999999999"})
        expect_word(sentence_of([&] { spec.preset(preset); }),
                    std::string(preset) + "\" is too large; it must be at most 1048576");
    for (const char *preset : {"hsdp:", "mics:0", "hpz:-99999999999", "hsdp:2x"})
        expect_word(sentence_of([&] { spec.preset(preset); }), "of at least 1 behind the colon");
}

std::vector<vescomm_optimizer_state_t> states;

// Adds a group whose optimizer has `states`.
std::string add_group() {
    vescomm_optimizer_kind_t kind = vescomm_optimizer_kind_init();
    kind.name = "own";
    kind.needs = [](void *, const void *, vescomm_optimizer_needs_t *needs, const char **) {
        needs->states = states.data();
        needs->state_count = static_cast<std::uint32_t>(states.size());
        return 0;
    };
    kind.step = [](void *, const void *, const vescomm_optimizer_run_t *) { return 0; };
    Spec spec;
    const std::uint64_t id = spec.add_parameter(spec.add_unit("unit"), {.name = "w", .shape = {7}});
    return sentence_of([&] { spec.add_group(std::span(&id, 1), &kind, nullptr); });
}

TEST(Spec, RefusesStatesThatNoCheckpointCanHold) {
    const auto state = [](vescomm_type_t type, const char *name) {
        vescomm_optimizer_state_t made = vescomm_optimizer_state_init();
        made.type = type;
        made.name = name;
        return made;
    };
    const std::string long_name(80, 'n');
    const std::string other_long_name = long_name + "m";
    states = {state(VESCOMM_F32, "first moment"), state(VESCOMM_F64, "second moment")};
    expect_word(add_group(), "no error");
    states = {state(VESCOMM_C128, "rotation")};
    expect_word(add_group(), "c128");
    states = {state(VESCOMM_F32, "a moment"), state(VESCOMM_F32, "a_moment")};
    expect_word(add_group(), "have the role \"state.a_moment\"");
    states = {state(VESCOMM_F32, long_name.c_str()), state(VESCOMM_F32, other_long_name.c_str())};
    expect_word(add_group(), "first 58 letters");
    states = {state(VESCOMM_F32, "same"), state(VESCOMM_F32, "same")};
    expect_word(add_group(), "have the role \"state.same\"");
}

TEST(Spec, TakesTheFlagsOfTheParameterThatATiedOneShares) {
    Spec spec;
    const std::uint64_t first = spec.add_unit("first"), second = spec.add_unit("second");
    const auto frozen = static_cast<std::int64_t>(
        spec.add_parameter(first, {.name = "w", .shape = {7}, .flags = VESCOMM_FSDP_FROZEN}));
    const auto tie = [&](const char *name, std::uint32_t flags) {
        return sentence_of([&] {
            spec.add_parameter(second,
                               {.name = name, .shape = {7}, .flags = flags, .tied_to = frozen});
        });
    };
    expect_word(tie("without", 0), "no error");
    expect_word(tie("same", VESCOMM_FSDP_FROZEN), "no error");
    expect_word(tie("other", VESCOMM_FSDP_MATRIX),
                "is tied and has flags 0x4; \"first.w\" has 0x1");
}

TEST(Spec, TiesParametersWithTheSamePropertiesOnly) {
    Spec spec;
    const std::uint64_t unit = spec.add_unit("unit");
    const ParameterSpec shared = {.name = "f16",
                                  .shape = {2, 6, 3},
                                  .type = VESCOMM_F16,
                                  .batch_dimensions = 1,
                                  .block_rows = 2,
                                  .flags = VESCOMM_FSDP_MATRIX};
    const auto f16 = static_cast<std::int64_t>(spec.add_parameter(unit, shared));
    int number = 0;
    const auto tie = [&](const std::function<void(ParameterSpec &)> &change) {
        ParameterSpec tied = {
            .name = "tied " + std::to_string(number++), .shape = shared.shape, .tied_to = f16};
        change(tied);
        return sentence_of([&] { spec.add_parameter(unit, tied); });
    };
    expect_word(tie([](ParameterSpec &) {}), "no error");
    expect_word(tie([](ParameterSpec &tied) { tied.type = VESCOMM_F16; }), "no error");
    expect_word(tie([](ParameterSpec &tied) { tied.type = VESCOMM_BF16; }),
                "has type bf16; \"unit.f16\" has f16");
    expect_word(tie([](ParameterSpec &tied) { tied.batch_dimensions = 1, tied.block_rows = 2; }),
                "no error");
    expect_word(tie([](ParameterSpec &tied) { tied.block_elements = 6; }), "no error");
    // The parameter behind "f16" is tied to it.
    expect_word(tie([&](ParameterSpec &tied) { tied.block_rows = 2, tied.tied_to = f16 + 1; }),
                "no error");
    expect_word(tie([&](ParameterSpec &tied) { tied.block_rows = 3, tied.tied_to = f16 + 1; }),
                "has blocks of 9 elements; \"unit.f16\" has blocks of 6");
    expect_word(tie([](ParameterSpec &tied) { tied.block_rows = -1; }),
                "has blocks of 18 elements");
    expect_word(tie([](ParameterSpec &tied) { tied.batch_dimensions = 2; }),
                "has batch_dimensions 2; \"unit.f16\" has 1");
    expect_word(tie([](ParameterSpec &tied) { tied.tied_to = -2; }), "is tied to -2");
    expect_word(tie([](ParameterSpec &tied) { tied.tied_to = 99; }), "is tied to 99");
}

TEST(Spec, RefusesAParameterThatIsTwiceInAGroup) {
    Spec spec;
    const std::uint64_t id = spec.add_parameter(spec.add_unit("unit"), {.name = "w", .shape = {7}});
    const vescomm_sgd_settings_t settings = vescomm_sgd_settings_init();
    const auto add = [&](const std::vector<std::uint64_t> &ids) {
        return sentence_of([&] { spec.add_group(ids, vescomm_optimizer_get_sgd(), &settings); });
    };
    expect_word(add({id, id}), "\"unit.w\" is given twice");
    expect_word(add({id}), "no error");
    expect_word(add({id}), "\"unit.w\" is in a group already");
}

// A head that is the embedding has no gradients of its own.
TEST(Spec, NeedsOneGradientSlotForAUnitWithTiedParametersOnly) {
    run_ranks(2, [](Communicator &comm) {
        vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
        options.gradient_slots = 1;
        Spec spec(options);
        const std::uint64_t embedding = spec.add_unit("embedding");
        const std::uint64_t token =
            spec.add_parameter(embedding, {.name = "token", .shape = {13, 5}});
        const std::uint64_t head = spec.add_unit("head");
        const std::uint64_t tied = spec.add_parameter(
            head, {.name = "weight", .shape = {13, 5}, .tied_to = std::int64_t(token)});
        spec.add_parameter(head, {.name = "scale", .shape = {5}, .flags = VESCOMM_FSDP_FROZEN});
        vescomm_sgd_settings_t sgd = vescomm_sgd_settings_init();
        sgd.learning_rate = 1;
        spec.add_group(std::span(&token, 1), vescomm_optimizer_get_sgd(), &sgd);
        Engine engine(spec, comm);
        engine.begin(VESCOMM_FSDP_LAST);
        for (const std::uint64_t unit : {embedding, head}) {
            engine.pre_forward(unit);
            engine.post_forward(unit);
        }
        for (const auto &[unit, id] : {std::pair(head, tied), std::pair(embedding, token)}) {
            engine.pre_backward(unit);
            const auto [view, mode] = engine.gradient(id);
            for (std::int64_t i = 0; i < view.elements; ++i)
                write(view, i, mode == VESCOMM_FSDP_ADD ? read(view, i) + 1 : 1);
            engine.post_backward(unit);
        }
        engine.finish_backward();
        engine.step();
        EXPECT_EQ(read_all(engine, {{token}}), std::vector<float>(65, -4.0f));
    });
}

void expect_difference(const Spec &spec, Communicator &comm, const char *words) {
    try {
        Engine engine(spec, comm);
        ADD_FAILURE() << "the engine was created";
    } catch (const Error &error) {
        EXPECT_EQ(error.status(), VESCOMM_ERROR_MISMATCH) << error.what();
        expect_word(error.what(), words);
    }
}

// Three specifications: every rank finds the difference in the same place.
TEST(Spec, OfThreeKindsIsAnErrorOnAllRanks) {
    struct Ranks {
        std::vector<std::size_t> units;
        std::vector<int> slots;
        const char *word;
    };
    const Ranks all[] = {{{2, 2, 3}, {2, 2, 2}, "ranks 0 and 2 differ in the number of units"},
                         {{2, 2, 3},
                          {2, 3, 2},
                          "ranks 0 and 1 differ in slots, which is 2 on rank 0 and 3 on rank 1"},
                         {{2, 3, 2},
                          {2, 2, 3},
                          "ranks 0 and 2 differ in slots, which is 2 on rank 0 and 3 on rank 2"},
                         {{2, 2, 2}, {2, 2, 2}, "ranks 0 and 1 differ in unit 1"}};
    for (const Ranks &ranks : all)
        run_ranks(3, [&](Communicator &comm) {
            const auto rank = static_cast<std::size_t>(comm.rank());
            vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
            options.slots = ranks.slots[rank];
            Spec spec(options);
            for (std::size_t unit = 0; unit < ranks.units[rank]; ++unit)
                spec.add_parameter(spec.add_unit("unit" + std::to_string(unit)),
                                   {.name = "w", .shape = {unit == 1 && rank == 1 ? 5 : 3}});
            expect_difference(spec, comm, ranks.word);
        });
}

// `make`: of a rank.
void expect_on_both(const std::function<Spec(int)> &make, const char *words) {
    run_ranks(2, [&](Communicator &comm) { expect_difference(make(comm.rank()), comm, words); });
}

// An axis or a group has no number that a sentence could show.
TEST(Spec, NamesTheAxisOrGroupThatDiffers) {
    const auto with_preset = [](const std::string &preset) {
        Spec spec;
        spec.preset(preset);
        spec.add_parameter(spec.add_unit("unit"), {.name = "w", .shape = {3}});
        return spec;
    };
    expect_on_both([&](int rank) { return with_preset(rank == 0 ? "zero3" : "zero2"); },
                   "differ in axis 0, which is");
    expect_on_both([&](int rank) { return with_preset(rank == 0 ? "zero3" : "hsdp:1"); },
                   "differ in the number of axes, which is 1 on rank 0 and 2 on rank 1");
    expect_on_both(
        [](int rank) {
            Spec spec;
            const std::uint64_t ids[] = {
                spec.add_parameter(spec.add_unit("unit"), {.name = "w", .shape = {3}})};
            vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
            settings.learning_rate = rank == 0 ? 1e-3f : 1e-4f;
            spec.add_group(ids, vescomm_optimizer_get_adamw(), &settings);
            return spec;
        },
        "settings or states of group 0, whose kind is \"adamw\" here");
    // Parameters in no group, if there are any, make one more.
    expect_on_both(
        [](int rank) {
            Spec spec;
            spec.add_parameter(
                spec.add_unit("unit"),
                {.name = "w", .shape = {3}, .flags = rank == 0 ? 0 : VESCOMM_FSDP_FROZEN});
            return spec;
        },
        "differ in unit 0, which is \"unit\" here: parameter 0, which is \"w\" here: flags, which "
        "is 0 on rank 0 and ");
    expect_on_both(
        [](int rank) {
            Spec spec;
            const std::uint64_t unit = spec.add_unit("unit");
            for (const char *name : {"a", "b"})
                spec.add_parameter(unit, {.name = name, .shape = {3}});
            const std::uint64_t ids[] = {rank == 0 ? 0u : 1u};
            const vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
            spec.add_group(ids, vescomm_optimizer_get_adamw(), &settings);
            return spec;
        },
        "settings or states of group 0, whose kind is \"adamw\" here");
}

TEST(Spec, NamesTheParameterThatDiffersAndItsValues) {
    const auto second = [](const ParameterSpec &on_first, const ParameterSpec &on_other) {
        return [=](int rank) {
            Spec spec;
            const std::uint64_t unit = spec.add_unit("block");
            spec.add_parameter(unit, {.name = "bias", .shape = {3}});
            spec.add_parameter(unit, rank == 0 ? on_first : on_other);
            return spec;
        };
    };
    const ParameterSpec plain{.name = "w", .shape = {4, 6}};
    const auto expect = [&](const ParameterSpec &other, const std::string &words) {
        const std::string begin =
            "differ in unit 0, which is \"block\" here: parameter 1, which is \"";
        expect_on_both(second(plain, other), (begin + words).c_str());
    };
    expect({.name = "w", .shape = {4, 7}}, "w\" here: shape[1], which is 6 on rank 0 and 7 on");
    expect({.name = "w", .shape = {4}},
           "w\" here: the number of dimensions, which is 2 on rank 0 and 1 on rank 1");
    expect({.name = "w", .shape = {4, 6}, .block_rows = 2},
           "w\" here: block_rows, which is 1 on rank 0 and 2 on rank 1");
    expect({.name = "w", .shape = {4, 6}, .type = VESCOMM_F16}, "w\" here: type, which is ");
    // Each rank shows its own name.
    expect_on_both(second(plain, {.name = "v", .shape = {4, 6}}), "\" here; use the same");
    const auto with = [](std::uint32_t flags, int parameters) {
        Spec spec;
        const std::uint64_t unit = spec.add_unit("block", flags);
        for (int i = 0; i < parameters; ++i)
            spec.add_parameter(unit, {.name = "w" + std::to_string(i), .shape = {3}});
        return spec;
    };
    expect_on_both(
        [&](int rank) { return with(rank == 0 ? 0 : VESCOMM_FSDP_KEEP_GATHERED, 1); },
        "here: the flag VESCOMM_FSDP_KEEP_GATHERED, which is 0 on rank 0 and 1 on rank 1");
    expect_on_both([&](int rank) { return with(0, 1 + rank); },
                   "here: the number of its parameters, which is 1 on rank 0 and 2 on rank 1");
    expect_on_both([&](int rank) { return with(0, rank); },
                   "here: the number of its parameters, which is 0 on rank 0 and 1 on rank 1");
}

}  // namespace
}  // namespace vescomm::fsdp::testing
