// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Times and bytes of a step, from the summaries of the engine.
#pragma once

#include <string>
#include <vector>

#include "fsdp/examples/train_gpt/trainer.h"

namespace train_gpt {

// Averages over the steps of a rank. The first step prepares kernels and counts only if it is the
// only one.
struct StepTimes {
    int steps = 0;
    // Milliseconds.
    double step = 0;
    double program = 0;  // computation, evaluations and saves
    double gather = 0;
    double reduce = 0;
    double agree = 0;
    double norm = 0;
    double update = 0;
    double gathers = 0;
    double early_gathers = 0;
    double gather_bytes = 0;
    double reduce_bytes = 0;
    double replica_bytes = 0;
};

StepTimes step_times(const std::vector<StepResult> &steps);

// Returns a table for the terminal.
std::string text_of(const StepTimes &times);

}  // namespace train_gpt
