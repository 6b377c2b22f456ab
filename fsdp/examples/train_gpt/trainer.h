// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Trains one model with two parts: the engine gathers parameters and sums gradients; the compute
// part uses them one unit at a time.
//
//     for each micro-batch:     engine.begin
//         for each unit, up:    engine.pre_forward   gpt.forward    engine.post_forward
//         for each unit, down:  engine.pre_backward  gpt.backward   engine.post_backward
//                               engine.finish_backward
//     engine.step
//
// All functions of Trainer are collective. Results are equal on any number of ranks up to rounding:
// sequences depend on the step, gradients are divided by the tokens of all ranks before they are
// summed, and an initial value depends on the element's index in its tensor.
#pragma once

#include <cstddef>
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
    double norm = 0;  // of the gradients, before clipping; not finite if the step was skipped
    double loss_scale = 1;
    double learning_rate = 0;
    double seconds = 0;
    double communication_seconds = 0;
    double exposed_seconds = 0;
    vescomm_fsdp_counters_t before;  // of the engine, when the step began
    vescomm_fsdp_counters_t after;
    vescomm_fsdp_step_summary_t summary = vescomm_fsdp_step_summary_init();
};

// Returns the learning rate of a step: a linear warm-up, then it falls with the square root of the
// steps. It does not depend on the number of steps, so a run that is stopped and goes on is the
// same as one that was not.
double learning_rate(double highest, int step);

// Returns the preset for a number of ranks: that of the options, or zero3 if its groups do not
// divide the ranks, which happens after the death of some.
std::string preset_for(const Options &options, int ranks);

// Returns the model for the engine. The number of a unit is that of describe(); parameters have
// consecutive ids. Rows of matrices stay together in blocks of `block_rows`; vectors may be cut
// anywhere.
vescomm::fsdp::Spec specification(const Options &options, int ranks);

// The state of a run beside that of the engine. Without padding: checkpoints have its bytes.
struct RunState {
    std::int64_t steps = 0;  // done, with skipped ones
    std::int64_t skipped = 0;
    vescomm_fsdp_loss_scale_t loss_scale = vescomm_fsdp_loss_scale_init();  // used with f16
};

// Returns the state after a recovery with the values of the survivors, whose engine has done
// `updates` steps and has skipped `skipped`. A rank may not know the last of them, because another
// one died during it: its loss scale is updated for that step, as on the ranks that know it.
RunState after_recovery(RunState state, std::int64_t updates, std::int64_t skipped);

// Gathers units and hands their parameters to a Gpt.
class Parameters {
public:
    Parameters(vescomm::fsdp::Engine &engine, const Shape &shape);

    std::span<const void *const> of(int unit);
    struct Gradients {
        std::span<void *const> data;
        bool accumulate;
    };
    Gradients gradients_of(int unit);
    int units() const { return static_cast<int>(first_.size()) - 1; }

private:
    vescomm::fsdp::Engine &engine_;
    std::vector<std::uint64_t> first_;  // id of the first parameter of each unit, and the end
    std::vector<const void *> parameters_;
    std::vector<void *> gradients_;
};

// Returns the sum over ranks, the same on every rank. Collective.
double sum_over_ranks(const vescomm::Communicator &comm, double mine);

// Sets elements [first, first + values.size()) of a tensor to their initial values.
void set_initial_values(const TensorDescription &tensor, std::uint64_t seed, int unit, int index,
                        std::int64_t first, std::span<float> values);

class Trainer {
public:
    // comm, options and text must outlive the trainer.
    Trainer(vescomm::Communicator &comm, const Options &options, const TextData &text);

    StepResult step(int step);

    // Goes on with the ranks that have survived the death of others. `recovery` has the folder of
    // checkpoints for shards that are lost; the steps of the result include skipped ones. Throws
    // vescomm::Error; it may then be called again.
    vescomm_fsdp_recovery_t recover(vescomm::Communicator &survivors,
                                    vescomm_fsdp_recovery_t recovery);
    // The last step that began to update the parameters. After a recovery it may be complete
    // although step() threw.
    const StepResult &last_step() const { return last_step_; }

    // Returns the loss of the held-out sequences in nats per byte.
    double held_out_loss();

    vescomm::fsdp::Engine &engine() { return engine_; }
    const vescomm::Communicator &comm() const { return *comm_; }
    const vescomm::fsdp::Spec &spec() const { return spec_; }
    std::size_t activation_bytes() const { return model_.activation_bytes(); }

    // The bytes that a checkpoint keeps beside the model: steps and the loss scale.
    std::vector<std::byte> extra() const;
    // Takes these bytes from the checkpoint that the engine has loaded. Returns the number of steps
    // that are done, with skipped ones.
    int set_extra_of_checkpoint();

private:
    // Steps of the run that were skipped.
    std::int64_t skipped() const;
    void forward(const Batch &batch);
    void backward(float scale);
    bool gather_ahead(int unit);
    double micro_batch(int step, int number, double tokens);
    Gpt make_model() const;

    // Runs body and records it in the trace as computation.
    template <typename Body>
    void traced(const char *what, int unit, Body &&body);

    vescomm::Communicator *comm_;
    const Options &options_;
    const TextData &text_;
    int rank_;
    int ranks_;
    std::vector<UnitDescription> units_;
    vescomm::fsdp::Spec spec_;
    vescomm::fsdp::Engine engine_;
    Parameters parameters_;
    Gpt model_;
    RunState state_;
    std::int64_t skipped_before_ = 0;  // steps that the engine has not counted: of a checkpoint
    StepResult last_step_;
};

}  // namespace train_gpt
