// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Trains one model with two parts: the engine gathers parameters and sums gradients; the compute
// part uses them one unit at a time.
//
//     for each unit, up:    engine.before_forward   gpt.forward    engine.after_forward
//     for each unit, down:  engine.before_backward  gpt.backward   engine.after_backward
//     engine.step
//
// All functions of Trainer are collective. Results are equal on any number of ranks up to rounding:
// sequences depend on the step, gradients are divided by the tokens of all ranks before they are
// summed, and an initial value depends on the element's index in its tensor.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fsdp/examples/train_gpt/gpt.h"
#include "fsdp/examples/train_gpt/options.h"
#include "fsdp/examples/train_gpt/text_data.h"
#include "vescomm/fsdp.hpp"
#include "vescomm/vescomm.hpp"

namespace train_gpt {

// Result of one step and its cost on this rank.
struct StepResult {
    double loss = 0;  // nats per byte of the whole batch, before the update
    double norm = 0;  // of the gradients, before clipping
    double learning_rate = 0;
    double seconds = 0;
    double communication_seconds = 0;
    double exposed_seconds = 0;
};

// Returns the learning rate of a step: linear warm-up over the first tenth of the steps, then a
// cosine down to a tenth of `highest`.
double learning_rate(double highest, int step, int steps);

// Returns the model's units for the engine. Rows of matrices stay together in blocks of
// `block_rows`; vectors may be cut anywhere.
std::vector<vescomm::fsdp::UnitSpec> units_to_shard(const Shape &shape, std::int64_t block_rows);

// Sets elements [first, first + values.size()) of a tensor to their initial values.
void set_initial_values(const TensorDescription &tensor, std::uint64_t seed, int unit, int index,
                        std::int64_t first, std::span<float> values);

class Trainer {
public:
    // comm, options and text must outlive the trainer.
    Trainer(vescomm::Communicator &comm, const Options &options, const TextData &text);

    StepResult step(int step);

    // Returns the loss of the held-out sequences in nats per byte.
    double held_out_loss();

    vescomm::fsdp::Engine &engine() { return engine_; }
    const vescomm::fsdp::Engine &engine() const { return engine_; }
    std::size_t activation_bytes() const { return model_.activation_bytes(); }

private:
    void forward(const Batch &batch);
    void backward(float scale);

    // Runs body and records it in the trace as computation.
    template <typename Body>
    void traced(const char *what, int unit, Body &&body);

    vescomm::Communicator &comm_;
    const Options &options_;
    const TextData &text_;
    int rank_;
    int ranks_;
    std::vector<UnitDescription> units_;
    vescomm::fsdp::Engine engine_;
    Gpt model_;
};

}  // namespace train_gpt
