// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// The state of a run after the death of a rank in the middle of a step.
#include "fsdp/examples/train_gpt/trainer.h"

#include <gtest/gtest.h>

namespace train_gpt {
namespace {

// Ten steps, of which two were skipped, and a loss scale that grows after the next good step.
RunState before() {
    RunState state;
    state.steps = 10;
    state.skipped = 2;
    state.loss_scale.scale = 1024;
    state.loss_scale.growth_interval = 5;
    state.loss_scale.good_steps = 4;
    return state;
}

void expect_equal(const RunState &a, const RunState &b) {
    EXPECT_EQ(a.steps, b.steps);
    EXPECT_EQ(a.skipped, b.skipped);
    EXPECT_EQ(a.loss_scale.scale, b.loss_scale.scale);
    EXPECT_EQ(a.loss_scale.good_steps, b.loss_scale.good_steps);
}

TEST(AfterRecovery, AStepThatNoSurvivorHasCompletedIsRepeated) {
    expect_equal(after_recovery(before(), 8, 2), before());
}

// A rank that saw the end of the step and one that did not go on with the same state. Otherwise
// they would take their next step with different loss scales.
TEST(AfterRecovery, AllSurvivorsHaveTheSameStateAfterAStepThatOneHasCompleted) {
    for (const bool skipped : {false, true}) {
        RunState seen = before();
        ++seen.steps;
        seen.skipped += skipped ? 1 : 0;
        vescomm::check(vescomm_fsdp_update_loss_scale(&seen.loss_scale, skipped ? 1 : 0));
        EXPECT_EQ(seen.loss_scale.scale, skipped ? 512 : 2048);
        const std::int64_t updates = skipped ? 8 : 9;
        expect_equal(after_recovery(seen, updates, seen.skipped), seen);
        expect_equal(after_recovery(before(), updates, seen.skipped), seen);
    }
}

}  // namespace
}  // namespace train_gpt
