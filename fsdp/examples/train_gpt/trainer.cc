// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/examples/train_gpt/trainer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "fsdp/examples/train_gpt/random.h"

namespace train_gpt {

namespace {

vescomm::fsdp::EngineOptions engine_options(const Options &options) {
    return {.compute = options.precision == Precision::f32 ? vescomm::fsdp::Precision::f32
                                                           : vescomm::fsdp::Precision::bf16,
            .slots = options.slots,
            .gradient_slots = options.gradient_slots,
            .uniform = options.uniform};
}

double communication_seconds(const vescomm::Communicator &comm) {
    const vescomm_comm_counters_t counters = comm.counters();
    return counters.busy_seconds + counters.waiting_seconds;
}

}  // namespace

double learning_rate(double highest, int step, int steps) {
    const int warm_up = std::max(1, steps / 10);
    if (step < warm_up) return highest * (step + 1) / warm_up;
    const double progress = static_cast<double>(step - warm_up) / std::max(1, steps - warm_up);
    const double lowest = highest / 10;
    return lowest + (highest - lowest) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

std::vector<vescomm::fsdp::UnitSpec> units_to_shard(const Shape &shape, std::int64_t block_rows) {
    std::vector<vescomm::fsdp::UnitSpec> specs;
    for (const UnitDescription &unit : describe(shape)) {
        specs.push_back({unit.name, {}});
        for (const TensorDescription &tensor : unit.tensors)
            specs.back().tensors.push_back({.name = tensor.name,
                                            .shape = tensor.shape,
                                            .block_rows = tensor.shape.size() > 1 ? block_rows : 1,
                                            .batch_dimensions = 0});
    }
    return specs;
}

void set_initial_values(const TensorDescription &tensor, std::uint64_t seed, int unit, int index,
                        std::int64_t first, std::span<float> values) {
    using Initial = TensorDescription::Initial;
    if (tensor.initial != Initial::normal) {
        std::fill(values.begin(), values.end(), tensor.initial == Initial::ones ? 1.0f : 0.0f);
        return;
    }
    const RandomStream stream(
        seed, RandomStream::Purpose::initial_value,
        {static_cast<std::uint64_t>(unit), static_cast<std::uint64_t>(index)});
    const auto deviation = static_cast<float>(tensor.standard_deviation);
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = deviation * stream.normal(static_cast<std::uint64_t>(first) + i);
}

Trainer::Trainer(vescomm::Communicator &comm, const Options &options, const TextData &text)
    : comm_(comm),
      options_(options),
      text_(text),
      rank_(comm.rank()),
      ranks_(comm.ranks()),
      units_(describe(options.shape)),
      engine_(comm, units_to_shard(options.shape, options.block_rows), engine_options(options)),
      // Size of the largest share. The rank that has it depends on the number of sequences. Unused
      // memory is never touched.
      model_(options.shape, options.precision, (options.batch - 1) / ranks_ + 1) {
    engine_.initialise([&](int unit, int tensor, std::int64_t first, std::span<float> values) {
        set_initial_values(units_[unit].tensors[tensor], options.seed, unit, tensor, first, values);
    });
}

template <typename Body>
void Trainer::traced(const char *what, int unit, Body &&body) {
    if (options_.trace.empty()) return body();
    const double begin = vescomm_trace_get_seconds();
    body();
    vescomm::check(vescomm_trace_add_span(comm_.get(), (what + units_[unit].name).c_str(),
                                          "compute", begin, vescomm_trace_get_seconds()));
}

void Trainer::forward(const Batch &batch) {
    model_.set_batch(batch.sequences, batch.inputs.data(), batch.targets.data());
    for (int unit = 0; unit < engine_.units(); ++unit) {
        engine_.before_forward(unit);
        traced("forward ", unit, [&] { model_.forward(unit, engine_.parameters(unit)); });
        engine_.after_forward(unit);
    }
}

void Trainer::backward(float scale) {
    for (int unit = engine_.units(); unit-- > 0;) {
        engine_.before_backward(unit);
        traced("backward ", unit, [&] {
            model_.backward(unit, engine_.parameters(unit), engine_.gradients(unit), false, scale);
        });
        engine_.after_backward(unit);
    }
}

StepResult Trainer::step(int step) {
    const double begin = vescomm_trace_get_seconds();
    const double communication = communication_seconds(comm_);
    const double exposed = engine_.exposed_seconds();
    const double optimizer = engine_.optimizer_seconds();

    // Dividing by the tokens of all ranks makes the sum over ranks the gradient of the mean.
    const double tokens = static_cast<double>(options_.batch) * options_.shape.context;
    forward(text_.training(options_.seed, step, share_of(options_.batch, rank_, ranks_)));
    const double loss_sum = model_.loss_sum();
    backward(static_cast<float>(1 / tokens));

    StepResult result;
    result.learning_rate = learning_rate(options_.learning_rate, step, options_.steps);
    result.norm = engine_.step({.learning_rate = result.learning_rate});
    const double stepped = vescomm_trace_get_seconds();
    result.loss = engine_.sum(loss_sum) / tokens;

    // step() runs the optimizer last, after all waiting.
    vescomm::check(vescomm_trace_add_span(comm_.get(), "optimizer", "compute",
                                          stepped - (engine_.optimizer_seconds() - optimizer),
                                          stepped));
    result.seconds = vescomm_trace_get_seconds() - begin;
    result.exposed_seconds = engine_.exposed_seconds() - exposed;
    // The counters omit operations that are too short to be timed; the engine's clock includes
    // them.
    result.communication_seconds =
        std::max(communication_seconds(comm_) - communication, result.exposed_seconds);
    return result;
}

double Trainer::held_out_loss() {
    const int sequences = text_.held_out_sequences();
    double loss_sum = 0;
    // One batch at a time, the size that the model is made for.
    for (int first = 0; first < sequences; first += options_.batch) {
        const Share share = share_of(std::min(options_.batch, sequences - first), rank_, ranks_);
        forward(text_.held_out({first + share.begin, first + share.end}));
        loss_sum += model_.loss_sum();
    }
    return engine_.sum(loss_sum) / (static_cast<double>(sequences) * options_.shape.context);
}

}  // namespace train_gpt
