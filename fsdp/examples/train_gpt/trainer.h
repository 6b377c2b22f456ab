// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// One model between two hands: the engine, which gathers parameters and sums gradients, and the
// compute part, which is lent them a unit at a time.
//
//     for each unit, up:    engine.before_forward   gpt.forward    engine.after_forward
//     for each unit, down:  engine.before_backward  gpt.backward   engine.after_backward
//     engine.step
//
// Everything here is collective, and has the same results on any number of ranks up to rounding:
// sequences belong to the step, gradients are divided by the tokens of all ranks before they are
// summed, and initial values belong to an element's place in its tensor.
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

// What one step did, and what it cost this rank.
struct StepResult {
    double loss = 0;  // nats per byte of the whole batch, before the update
    double norm = 0;  // of the gradients, before clipping
    double learning_rate = 0;
    double seconds = 0;
    double communication_seconds = 0;
    double exposed_seconds = 0;
};

// Linear warm-up over the first tenth of the steps, then a cosine down to a tenth of the highest.
double learning_rate(double highest, int step, int steps);

// The model's units as the engine wants them: rows of matrices stay together in blocks, vectors are
// cut anywhere.
std::vector<vescomm::fsdp::UnitSpec> units_to_shard(const Shape &shape, std::int64_t block_rows);

// Sets values [first, first + values.size()) of a tensor to what they start from.
void set_initial_values(const TensorDescription &tensor, std::uint64_t seed, int unit, int index,
                        std::int64_t first, std::span<float> values);

class Trainer {
public:
    // comm, options and text must outlive it.
    Trainer(vescomm::Communicator &comm, const Options &options, const TextData &text);

    StepResult step(int step);

    // Nats per byte of the held-out sequences.
    double held_out_loss();

    vescomm::fsdp::Engine &engine() { return engine_; }
    const vescomm::fsdp::Engine &engine() const { return engine_; }
    std::size_t activation_bytes() const { return model_.activation_bytes(); }

private:
    void forward(const Batch &batch);
    void backward(float scale);

    // Puts compute into the trace.
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
