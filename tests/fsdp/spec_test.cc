// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Specifications that are refused because they differ between ranks, and one that must not be.
#include "fsdp/training.h"

namespace vescomm::fsdp::testing {
namespace {

void expect_word(const std::string &sentence, const std::string &word) {
    EXPECT_NE(sentence.find(word), std::string::npos) << word << " in: " << sentence;
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

// Three specifications: every rank finds the difference in the same place.
TEST(Spec, OfThreeKindsIsAnErrorOnAllRanks) {
    struct Ranks {
        std::vector<std::size_t> units;
        std::vector<int> slots;
        const char *word;
    };
    const Ranks all[] = {
        {{2, 2, 3}, {2, 2, 2}, "numbers of units of the specifications of ranks 0 and 2"},
        {{2, 2, 3}, {2, 3, 2}, "options, axes or groups of the specifications of ranks 0 and 1"},
        {{2, 3, 2}, {2, 2, 3}, "options, axes or groups of the specifications of ranks 0 and 2"},
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
            try {
                Engine engine(spec, comm);
                ADD_FAILURE() << "the engine was created";
            } catch (const Error &error) {
                EXPECT_EQ(error.status(), VESCOMM_ERROR_MISMATCH) << error.what();
                expect_word(error.what(), ranks.word);
            }
        });
}

}  // namespace
}  // namespace vescomm::fsdp::testing
