// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/small_program.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>

namespace vescomm::internal {
namespace {

// A sum of two ranks of one node through inline data, as rank 0 executes it.
struct Fixture {
    SlotSequences sequences{2};
    Bindings bindings;
    Program program;
    // Source, output, the staging slots of both ranks, their partial sums, and their inline slots.
    enum Base : std::uint32_t { source, output, staging, inlined = staging + 4 };

    Fixture() {
        bindings.nodes = Nodes::single(2);
        bindings.sequences = &sequences;
        program.bases =
            Bases(std::vector<std::byte *>(8),
                  {.source = source, .output = output, .staging = staging, .inlined = inlined},
                  1 << 20, 8 << 10);
        BoundLane &lane = program.lanes.emplace_back();
        lane.sources = {{.address = {source, 0}, .registered = {}},
                        {.address = {inlined + 1, 64}, .registered = {}}};
        lane.steps = {{.action = Action::acquire},
                      {.action = Action::copy,
                       .count = 16,
                       .bytes = 64,
                       .to_type = VESCOMM_F32,
                       .from_type = VESCOMM_F32,
                       .to = {inlined, 64},
                       .from = {.address = {source, 0}, .registered = {}}},
                      {.action = Action::signal, .flag = inline_flag, .value = 1},
                      {.action = Action::wait, .flag = inline_flag, .value = 1, .peer = 1},
                      {.action = Action::reduce,
                       .count = 16,
                       .bytes = 128,
                       .to_type = VESCOMM_F32,
                       .from_type = VESCOMM_F32,
                       .to = {output, 0},
                       .sum = {.contributions = 2, .finish = true}}};
        program.max_sources = 2;
        program.uses_inline_flag = true;
    }

    BoundStep &step(std::size_t i) { return program.lanes[0].steps[i]; }
    SmallProgram make() const {
        return {program, bindings, ElementLoops(bindings.reduction, program.max_sources)};
    }
};

TEST(SmallProgram, HasTheStepsOfTheLane) {
    const Fixture fixture;
    const SmallProgram small = fixture.make();
    ASSERT_EQ(small.steps.size(), 5U);
    for (std::size_t i = 0; i < 5; ++i)
        EXPECT_EQ(small.steps[i].action, fixture.program.lanes[0].steps[i].action);
    EXPECT_EQ(small.steps[1].bytes, 64U);
    EXPECT_EQ(small.steps[1].to.slot, SlotKind::inlined);
    EXPECT_EQ(small.steps[1].to.offset, 64U);
    EXPECT_EQ(small.steps[1].from.slot, SlotKind::none);
    EXPECT_FALSE(small.steps[2].pairs);
    EXPECT_EQ(small.steps[3].local, 1U);
    EXPECT_EQ(small.steps[3].peer, 1);
    ASSERT_EQ(small.steps[4].sources, 2U);
    ASSERT_EQ(small.sources.size(), 2U);
    EXPECT_EQ(small.sources[0].slot, SlotKind::none);
    EXPECT_EQ(small.sources[1].slot, SlotKind::inlined);
    EXPECT_EQ(small.sources[1].base, Fixture::inlined + 1);
}

TEST(SmallProgram, KnowsPairFlagsAndTheirSlots) {
    Fixture fixture;
    fixture.step(1).to = {Fixture::staging, 128};
    fixture.step(2).flag = fixture.step(3).flag = pair_flag;
    const SmallProgram small = fixture.make();
    ASSERT_EQ(small.steps.size(), 5U);
    EXPECT_EQ(small.steps[1].to.slot, SlotKind::staging);
    EXPECT_TRUE(small.steps[2].pairs);
    EXPECT_TRUE(small.steps[3].pairs);
}

// Each of these changes alone makes a program larger than a small one.
TEST(SmallProgram, ExcludesAllElse) {
    const std::array<std::function<void(Fixture &)>, 14> changes{
        [](Fixture &f) {
            f.bindings.nodes = Nodes::from_sizes(std::array{1, 1});
        },
        [](Fixture &f) { f.bindings.sequences = nullptr; },
        [](Fixture &f) { f.program.uses_registered = true; },
        [](Fixture &f) { f.program.lanes.push_back(f.program.lanes[0]); },
        [](Fixture &f) { f.program.lanes.clear(); },
        [](Fixture &f) { f.step(1).when = When::registered; },
        [](Fixture &f) { f.step(3).conditional = true; },
        [](Fixture &f) { f.step(1).timed = true; },
        [](Fixture &f) { f.step(1).from_type = VESCOMM_BF16; },
        [](Fixture &f) { f.step(2).flag = 0; },
        [](Fixture &f) { f.step(3).flag = 0; },
        [](Fixture &f) { f.step(1).action = Action::put; },
        // No single loop performs these reductions.
        [](Fixture &f) { f.step(4).to_type = f.step(4).from_type = VESCOMM_F16; },
        [](Fixture &f) {
            f.step(4).to_type = f.step(4).from_type = VESCOMM_I32;
            f.bindings.reduction.divisor = 2;
        },
    };
    for (std::size_t i = 0; i < changes.size(); ++i) {
        Fixture fixture;
        changes[i](fixture);
        EXPECT_TRUE(fixture.make().steps.empty()) << "change " << i;
    }
    Fixture partial;
    partial.step(4).sum = {.contributions = 1, .partials = 1};
    EXPECT_TRUE(partial.make().steps.empty());
}

}  // namespace
}  // namespace vescomm::internal
