// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Specifications with units of experts: memory, views, pieces, and what is refused.
#include <algorithm>
#include <set>

#include "fsdp/experts.h"

namespace vescomm::fsdp::testing {
namespace {

// The ranks that hold an expert shard it: a rank has the bytes of its part of the experts only.
TEST(Experts, TakeTheMemoryOfTheirShare) {
    const auto report_of = [](int expert_ranks) {
        Spec spec(mixture_options(expert_ranks));
        spec.add_unit("experts", VESCOMM_FSDP_EXPERTS);
        spec.add_parameter(0, {.name = "w", .shape = {8, 64, 64}});
        return spec.report(8);
    };
    const vescomm_fsdp_report_t all = report_of(1);
    for (const int expert_ranks : {2, 4, 8}) {
        const vescomm_fsdp_report_t divided = report_of(expert_ranks);
        EXPECT_EQ(divided.parameters, 8 * 64 * 64);
        EXPECT_EQ(divided.shard_ranks, 8);
        EXPECT_EQ(divided.expert_shard_ranks, 8 / expert_ranks);
        EXPECT_EQ(divided.master_bytes, all.master_bytes);
        EXPECT_EQ(divided.replicated_bytes, all.replicated_bytes);
        EXPECT_EQ(divided.slot_bytes, all.slot_bytes / static_cast<unsigned>(expert_ranks));
        EXPECT_EQ(divided.gradient_slot_bytes,
                  all.gradient_slot_bytes / static_cast<unsigned>(expert_ranks));
        EXPECT_LT(divided.gather_bytes_per_step, all.gather_bytes_per_step);
    }
    EXPECT_EQ(report_of(8).gather_bytes_per_step, 0u);
    EXPECT_EQ(report_of(8).reduce_bytes_per_step, 0u);
}

// Dense units that travel in their own type have no memory for codes.
TEST(Experts, AloneInEightBitsTakeTheMemoryOfTheirCodes) {
    const auto spec_with = [](bool dense) {
        Spec spec(mixture_options(2));
        spec.add_unit("experts", VESCOMM_FSDP_EXPERTS);
        spec.add_parameter(0, {.name = "w", .shape = {8, 16, 16}, .gather_type = VESCOMM_I8});
        if (!dense) return spec;
        for (const char *name : {"first", "second"}) {
            const std::uint64_t unit = spec.add_unit(name);
            spec.add_parameter(unit, {.name = "w", .shape = {64, 64}});
        }
        return spec;
    };
    for (int rank = 0; rank < 4; ++rank)
        EXPECT_EQ(spec_with(true).report(4, rank).code_bytes,
                  spec_with(false).report(4, rank).code_bytes);
    run_ranks(4, [&](Communicator &comm) {
        const Spec spec = spec_with(true);
        Engine engine(spec, comm);
        EXPECT_EQ(engine.counters().allocated_bytes, spec.report(4, comm.rank()).peak_bytes);
        fill(engine);
        for (const std::uint64_t unit : {0, 1, 2, 0}) {
            engine.begin(VESCOMM_FSDP_EVAL);
            engine.pre_forward(unit);
            const vescomm_fsdp_view_t view = engine.parameter(unit);
            const std::int64_t first = unit == 0 ? comm.rank() % 2 * view.elements : 0;
            for (std::int64_t i = 0; i < view.elements; ++i)
                EXPECT_NEAR(read(view, i), initial(unit, first + i), unit == 0 ? 0.1 : 0);
            engine.post_forward(unit);
        }
    });
}

// Gradients of experts are not rounded if no other rank receives them.
TEST(Experts, AreNotQuantisedWhereNoRankSendsThem) {
    for (const int expert_ranks : {2, 4}) {
        vescomm_fsdp_spec_options_t chosen = mixture_options(expert_ranks);
        chosen.reduce_type = VESCOMM_I8;
        Spec spec(chosen);
        spec.add_unit("experts", VESCOMM_FSDP_EXPERTS);
        spec.add_parameter(0, {.name = "w", .shape = {8, 16, 16}});
        const vescomm_fsdp_report_t report = spec.report(4);
        EXPECT_EQ(report.code_bytes == 0, expert_ranks == 4);
        EXPECT_EQ(report.reduce_bytes_per_step == 0, expert_ranks == 4);
    }
}

// Views have the shape of a rank's experts, and pieces count elements of the whole parameter.
TEST(Experts, HaveViewsOfTheirOwnAndPiecesOfTheWhole) {
    for (const int ranks : {2, 4}) {
        std::vector<std::multiset<std::int64_t>> covered(static_cast<std::size_t>(ranks));
        run_ranks(ranks, [&](Communicator &comm) {
            const MixtureModel model = mixture("zero3", mixture_options(2));
            Engine engine(model.spec, comm);
            const std::uint64_t up = model.ids[2].front();
            for (const auto &piece : engine.pieces(2))
                for (std::int64_t i = 0; i < piece.elements; ++i)
                    if (piece.parameter == up)
                        covered[static_cast<std::size_t>(comm.rank())].insert(piece.first + i);
            engine.begin(VESCOMM_FSDP_EVAL);
            engine.pre_forward(2);
            const vescomm_fsdp_view_t view = engine.parameter(up);
            EXPECT_EQ(view.dimensions, 3);
            EXPECT_EQ(view.shape[0], expert_count / 2);
            EXPECT_EQ(view.elements, expert_count / 2 * 3 * 2);
            EXPECT_EQ(view.strides[0], 6);
            engine.post_forward(2);
        });
        std::multiset<std::int64_t> all;
        for (const auto &one : covered) all.insert(one.begin(), one.end());
        EXPECT_EQ(all.size(), static_cast<std::size_t>(expert_count * 6));
        for (std::int64_t i = 0; i < expert_count * 6; ++i) EXPECT_EQ(all.count(i), 1u);
    }
}

TEST(Experts, AreRefusedWithASentence) {
    const auto expect = [](const std::string &text, const char *part) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
    };
    const auto refused = [&](const ParameterSpec &parameter, vescomm_fsdp_spec_options_t chosen) {
        return error_of([&] {
            Spec spec(chosen);
            spec.add_unit("experts", VESCOMM_FSDP_EXPERTS);
            spec.add_parameter(0, parameter);
        });
    };
    expect(refused({.name = "w", .shape = {7, 2}}, mixture_options(2)),
           "parameter \"experts.w\" has 7 experts for 2 ranks");
    expect(refused({.name = "w", .shape = {}}, mixture_options(2)),
           "is a scalar in a unit of experts");
    expect(error_of([] { Spec spec(mixture_options(-1)); }), "expert_ranks is -1");
    expect(error_of([] { Spec().add_unit("u", 4); }), "flags of unit \"u\" are 0x4");
    expect(error_of([] {
               Spec spec(mixture_options(2));
               spec.add_unit("dense");
               spec.add_parameter(0, {.name = "w", .shape = {4, 2}});
               spec.add_unit("experts", VESCOMM_FSDP_EXPERTS);
               spec.add_parameter(1, {.name = "w", .shape = {8, 2}, .tied_to = 0});
           }),
           "tie parameters of the same kind of unit");
    const auto planned = [](const char *preset, int expert_ranks, int ranks) {
        return error_of([&] { mixture(preset, mixture_options(expert_ranks)).spec.report(ranks); });
    };
    expect(planned("zero3", 3, 4), "expert_ranks is 3; it must divide the 4 ranks");
    expect(planned("ddp", 2, 4), "it must divide the 1 ranks that shard a unit: use zero1");
    expect(planned("hsdp:3", 2, 6), "hsdp:K or mics:K with a multiple of 2 as K");
    expect(planned("hpz:2", 2, 4), "use zero3 or hsdp:K instead of hpz:K");
    // Without units of experts, or with 1, the option has no effect.
    EXPECT_EQ(planned("hpz:2", 1, 4), "no error");
    EXPECT_EQ(planned("ddp", 1, 4), "no error");
}

// Whatever the number of ranks that divide them, a trainer can open a unit of experts, large or
// not, beside another one.
TEST(Experts, HaveSlotsOfTheirOwnWithAnyExpertRanks) {
    for (const int expert_ranks : {0, 1, 2})
        for (const char *preset : {"zero3", "zero2"})
            run_ranks(2, [&](Communicator &comm) {
                SCOPED_TRACE(std::to_string(expert_ranks) + " expert_ranks, " + preset);
                vescomm_fsdp_spec_options_t options = mixture_options(expert_ranks);
                options.slots = options.gradient_slots = 1;
                options.large_unit_bytes = 1000;
                Spec spec(options);
                spec.preset(preset);
                spec.add_unit("dense");
                spec.add_parameter(0, {.name = "w", .shape = {50}});
                spec.add_unit("large");
                spec.add_parameter(1, {.name = "w", .shape = {700}});
                spec.add_unit("experts", VESCOMM_FSDP_EXPERTS);
                spec.add_parameter(2, {.name = "w", .shape = {4, 250}});
                Engine engine(spec, comm);
                EXPECT_EQ(engine.counters().allocated_bytes,
                          spec.report(2, comm.rank()).peak_bytes);
                engine.initialise([](std::uint64_t, std::int64_t, std::span<float> values,
                                     std::uint64_t) { std::ranges::fill(values, 1.0f); });
                engine.begin(VESCOMM_FSDP_LAST);
                for (const std::uint64_t unit : {0, 1, 2}) engine.pre_forward(unit);
                for (const std::uint64_t unit : {2, 1, 0}) engine.post_forward(unit);
                for (const std::uint64_t unit : {2, 1, 0}) engine.pre_backward(unit);
                for (const std::uint64_t unit : {2, 1, 0}) engine.post_backward(unit);
                engine.finish_backward();
                engine.step();
            });
}

TEST(Experts, AreTheSameOnAllRanks) {
    const auto error_with = [](const std::function<void(Communicator &)> &create,
                               const char *part) {
        run_ranks(2, [&](Communicator &comm) {
            const std::string text = error_of([&] { create(comm); });
            EXPECT_NE(text.find(part), std::string::npos) << text;
        });
    };
    error_with(
        [](Communicator &comm) {
            const MixtureModel model = mixture("zero3", mixture_options(1 + comm.rank()));
            const Engine engine(model.spec, comm);
        },
        "ranks 0 and 1 differ in expert_ranks, which is 1 on rank 0 and 2 on rank 1");
    error_with(
        [](Communicator &comm) {
            vescomm_fsdp_spec_options_t chosen = mixture_options(2);
            chosen.expert_divisor = comm.rank();
            const MixtureModel model = mixture("zero3", chosen);
            const Engine engine(model.spec, comm);
        },
        "ranks 0 and 1 differ in expert_divisor, which is 0 on rank 0 and 1 on rank 1");
    error_with(
        [](Communicator &comm) {
            Spec spec;
            spec.add_unit("first");
            spec.add_unit("second", comm.rank() == 1 ? VESCOMM_FSDP_EXPERTS : 0);
            spec.add_parameter(1, {.name = "w", .shape = {4, 2}, .batch_dimensions = 1});
            const Engine engine(spec, comm);
        },
        "differ in unit 1, which is \"second\" here");
}

}  // namespace
}  // namespace vescomm::fsdp::testing
