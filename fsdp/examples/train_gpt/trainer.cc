// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/examples/train_gpt/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "fsdp/examples/train_gpt/random.h"

namespace train_gpt {

namespace {

vescomm_fsdp_order_t order_of(const std::string &name) {
    if (name == "explicit") return VESCOMM_FSDP_EXPLICIT;
    return name == "recorded" ? VESCOMM_FSDP_RECORDED : VESCOMM_FSDP_DECLARED;
}

// Sequences of the largest part when `count` are divided among `parts`.
int largest_part(int count, int parts) {
    return (count - 1) / parts + 1;
}

vescomm_type_t type_of(Precision precision) {
    if (precision == Precision::f16) return VESCOMM_F16;
    return precision == Precision::f32 ? VESCOMM_F32 : VESCOMM_BF16;
}

// In 8 bits.
vescomm_type_t transfer_type_of(const std::string &name) {
    if (name == "f8") return VESCOMM_F8E4M3;
    return name == "int8" ? VESCOMM_I8 : VESCOMM_TYPE_DEFAULT;
}

vescomm_fsdp_loss_scale_t first_loss_scale(const Options &options) {
    vescomm_fsdp_loss_scale_t scale = vescomm_fsdp_loss_scale_init();
    scale.scale = options.loss_scale;
    scale.max_scale = std::max(scale.max_scale, scale.scale);
    scale.growth_interval = options.loss_scale_interval;
    return scale;
}

double communication_seconds(vescomm_comm_t *comm) {
    vescomm_comm_counters_t counters = vescomm_comm_counters_init();
    vescomm::check(vescomm_comm_get_counters(comm, &counters));
    return counters.busy_seconds + counters.waiting_seconds;
}

}  // namespace

double learning_rate(double highest, int step) {
    constexpr int warm_up = 10;
    constexpr double decay = 160;  // three times as many steps after the warm-up, half is left
    if (step < warm_up) return highest * (step + 1) / warm_up;
    return highest / std::sqrt(1 + (step - warm_up) / decay);
}

std::string preset_for(const Options &options, int ranks) {
    const std::size_t colon = options.preset.find(':');
    if (!options.elastic || colon == std::string::npos) return options.preset;
    const int group = std::atoi(options.preset.c_str() + colon + 1);
    return group > 0 && ranks % group != 0 ? "zero3" : options.preset;
}

namespace {

// The ranks of a secondary copy: those of the options, or none if survivors cannot form such
// groups.
int reshard_ranks_for(const Options &options, const std::string &preset, int ranks) {
    const std::size_t colon = preset.find(':');
    const bool replicas = colon != std::string::npos && preset.substr(0, colon) != "hpz";
    const int shard_ranks = replicas ? std::atoi(preset.c_str() + colon + 1) : ranks;
    const int wanted = options.reshard_ranks;
    return options.elastic && wanted > 0 && shard_ranks % wanted != 0 ? 0 : wanted;
}

}  // namespace

vescomm::fsdp::Spec specification(const Options &options, int ranks) {
    vescomm_planner_options_t planner = vescomm_planner_options_init();
    planner.mode = options.uniform ? VESCOMM_PLANNER_UNIFORM : VESCOMM_PLANNER_BALANCED;
    vescomm_fsdp_spec_options_t engine = vescomm_fsdp_spec_options_init();
    engine.compute_type = type_of(options.precision);
    engine.master_type = type_of(options.master_type);
    if (options.rounding == "nearest") engine.master_rounding = VESCOMM_FSDP_ROUND_NEAREST;
    engine.gather_type = transfer_type_of(options.gather_type);
    engine.reduce_type = transfer_type_of(options.reduce_type);
    engine.gather_block = options.gather_block;
    engine.slots = options.slots;
    engine.gradient_slots = options.gradient_slots;
    engine.large_unit_bytes = options.large_unit_bytes;
    engine.order = order_of(options.order);
    const std::string preset = preset_for(options, ranks);
    engine.keep_gathered = options.reshard ? 0 : 1;
    engine.reshard_ranks = reshard_ranks_for(options, preset, ranks);
    engine.seed = options.seed;
    engine.planner = &planner;
    engine.partner_copy = options.elastic && options.partner_copy ? 1 : 0;
    engine.offload_folder = options.offload.empty() ? nullptr : options.offload.c_str();
    vescomm::fsdp::Spec spec(engine);
    spec.preset(preset);
    std::vector<std::uint64_t> matrices, vectors;
    for (const UnitDescription &unit : describe(options.shape)) {
        const std::uint64_t number = spec.add_unit(unit.name);
        for (const TensorDescription &tensor : unit.tensors) {
            const bool matrix = tensor.shape.size() > 1;
            (matrix ? matrices : vectors)
                .push_back(
                    spec.add_parameter(number, {.name = tensor.name,
                                                .shape = tensor.shape,
                                                .block_rows = matrix ? options.block_rows : 1}));
        }
    }
    vescomm_adamw_settings_t settings = vescomm_adamw_settings_init();
    settings.learning_rate = options.learning_rate;
    settings.beta2 = 0.95;
    settings.weight_decay = 0.1;
    spec.add_group(matrices, vescomm_optimizer_get_adamw(), &settings);
    // Biases and the gains of norms do not decay.
    settings.weight_decay = 0;
    spec.add_group(vectors, vescomm_optimizer_get_adamw(), &settings);
    return spec;
}

RunState after_recovery(RunState state, std::int64_t updates, std::int64_t skipped) {
    const std::int64_t done = updates + skipped;
    if (done > state.steps)
        vescomm::check(
            vescomm_fsdp_update_loss_scale(&state.loss_scale, skipped > state.skipped ? 1 : 0));
    state.steps = done;
    state.skipped = skipped;
    return state;
}

Parameters::Parameters(vescomm::fsdp::Engine &engine, const Shape &shape)
    : engine_(engine), first_(1, 0) {
    for (const UnitDescription &unit : describe(shape))
        first_.push_back(first_.back() + unit.tensors.size());
}

std::span<const void *const> Parameters::of(int unit) {
    parameters_.clear();
    for (std::uint64_t id = first_[unit]; id < first_[unit + 1]; ++id)
        parameters_.push_back(engine_.parameter(id).data);
    return parameters_;
}

Parameters::Gradients Parameters::gradients_of(int unit) {
    gradients_.clear();
    bool accumulate = false;
    for (std::uint64_t id = first_[unit]; id < first_[unit + 1]; ++id) {
        const auto [view, mode] = engine_.gradient(id);
        gradients_.push_back(view.data);
        accumulate = mode == VESCOMM_FSDP_ADD;  // the same for all parameters of a unit
    }
    return {gradients_, accumulate};
}

double sum_over_ranks(const vescomm::Communicator &comm, double mine) {
    double sum = 0;
    vescomm::check(vescomm_all_reduce(comm.get(), &mine, &sum, 1, VESCOMM_F64, VESCOMM_SUM, nullptr,
                                      nullptr, nullptr));
    return sum;
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
    : comm_(&comm),
      options_(options),
      text_(text),
      rank_(comm.rank()),
      ranks_(comm.ranks()),
      units_(describe(options.shape)),
      spec_(specification(options, ranks_)),
      engine_(spec_, comm),
      parameters_(engine_, options.shape),
      model_(make_model()),
      state_{.loss_scale = first_loss_scale(options)} {
    std::vector<std::pair<int, int>> tensors;  // by id: unit and tensor
    for (std::size_t unit = 0; unit < units_.size(); ++unit)
        for (std::size_t tensor = 0; tensor < units_[unit].tensors.size(); ++tensor)
            tensors.emplace_back(unit, tensor);
    engine_.initialise([&](std::uint64_t id, std::int64_t first, std::span<float> values,
                           std::uint64_t) {
        const auto [unit, tensor] = tensors[id];
        set_initial_values(units_[unit].tensors[tensor], options.seed, unit, tensor, first, values);
    });
}

// Size of the largest part of a micro-batch. The rank that has it depends on the number of
// sequences. Unused memory is never touched.
Gpt Trainer::make_model() const {
    return Gpt(options_.shape, options_.precision,
               largest_part(largest_part(options_.batch, options_.accumulate), ranks_),
               options_.recompute);
}

vescomm_fsdp_recovery_t Trainer::recover(vescomm::Communicator &survivors,
                                         vescomm_fsdp_recovery_t recovery) {
    vescomm::fsdp::Spec spec = specification(options_, survivors.ranks());
    recovery.spec = spec.get();
    recovery = engine_.recover(survivors, recovery);
    recovery.spec = nullptr;
    if (recovery.from_checkpoint != 0) set_extra_of_checkpoint();
    else state_ = after_recovery(state_, recovery.steps, skipped());
    recovery.steps = state_.steps;
    spec_ = std::move(spec);
    comm_ = &survivors;
    rank_ = survivors.rank();
    ranks_ = survivors.ranks();
    model_ = make_model();
    return recovery;
}

template <typename Body>
void Trainer::traced(const char *what, int unit, Body &&body) {
    if (options_.trace.empty()) return body();
    const double begin = vescomm_trace_get_seconds();
    body();
    vescomm::check(vescomm_trace_add_span(engine_.comm(), (what + units_[unit].name).c_str(),
                                          "compute", begin, vescomm_trace_get_seconds()));
}

void Trainer::forward(const Batch &batch) {
    model_.set_batch(batch.sequences, batch.inputs.data(), batch.targets.data());
    bool ahead = false;  // the unit was gathered ahead
    for (int unit = 0; unit < parameters_.units(); ++unit) {
        engine_.pre_forward(unit);
        const bool next_ahead = gather_ahead(unit + 1);
        traced("forward ", unit, [&] { model_.forward(unit, parameters_.of(unit)); });
        engine_.post_forward(unit);
        if (std::exchange(ahead, next_ahead)) engine_.reshard(unit);
    }
}

// With the explicit order the engine gathers no unit ahead of its use. Returns true if it does now.
bool Trainer::gather_ahead(int unit) {
    const bool has_slot = options_.slots > 1 && options_.large_unit_bytes == 0;
    if (options_.order != "explicit" || !has_slot || unit < 0 || unit >= parameters_.units())
        return false;
    engine_.unshard(unit);
    return true;
}

void Trainer::backward(float scale) {
    bool ahead = false;  // the unit was gathered ahead
    for (int unit = parameters_.units(); unit-- > 0;) {
        engine_.pre_backward(unit);
        const bool next_ahead = gather_ahead(unit - 1);
        const bool block = unit > 0 && unit <= options_.shape.layers;
        if (options_.recompute && block) {
            engine_.pre_forward(unit);
            traced("recompute ", unit, [&] { model_.forward(unit, parameters_.of(unit)); });
            engine_.post_forward(unit);
        }
        traced("backward ", unit, [&] {
            const Parameters::Gradients gradients = parameters_.gradients_of(unit);
            model_.backward(unit, parameters_.of(unit), gradients.data, gradients.accumulate,
                            scale);
        });
        engine_.post_backward(unit);
        if (std::exchange(ahead, next_ahead)) engine_.reshard(unit);
    }
    engine_.finish_backward();
}

// Returns the sum of the losses of this rank.
double Trainer::micro_batch(int step, int number, double tokens) {
    engine_.begin(number + 1 == options_.accumulate ? VESCOMM_FSDP_LAST : 0);
    const Share part = share_of(options_.batch, number, options_.accumulate);
    Share mine = share_of(part.end - part.begin, rank_, ranks_);
    mine.begin += part.begin;
    mine.end += part.begin;
    forward(text_.training(options_.seed, step, mine));
    const double loss_sum = model_.loss_sum();
    const double scale = options_.precision == Precision::f16 ? state_.loss_scale.scale : 1;
    backward(static_cast<float>(scale / tokens));
    return loss_sum;
}

StepResult Trainer::step(int step) {
    const double begin = vescomm_trace_get_seconds();
    const double communication = communication_seconds(engine_.comm());
    StepResult result;
    result.before = engine_.counters();

    // Dividing by the tokens of all ranks makes the sum over ranks the gradient of the mean.
    const double tokens = static_cast<double>(options_.batch) * options_.shape.context;
    double loss_sum = 0;
    for (int number = 0; number < options_.accumulate; ++number)
        loss_sum += micro_batch(step, number, tokens);

    result.learning_rate = learning_rate(options_.learning_rate, step);
    vescomm_fsdp_step_t arguments = vescomm_fsdp_step_init();
    arguments.learning_rate_scale =
        options_.learning_rate > 0 ? result.learning_rate / options_.learning_rate : 0;
    arguments.max_norm = options_.clip;
    const bool scaled = options_.precision == Precision::f16;
    if (scaled) arguments.loss_scale = result.loss_scale = state_.loss_scale.scale;
    // Before the update: if a rank dies during it, all others know the results of the step.
    result.loss = sum_over_ranks(*comm_, loss_sum) / tokens;
    if (options_.elastic) result.norm = engine_.norm().first;
    result.seconds = vescomm_trace_get_seconds() - begin;
    result.after = result.before;
    last_step_ = result;
    const vescomm_fsdp_step_t done = engine_.step(arguments);
    state_.steps = step + 1;
    state_.skipped += done.skipped;
    result.norm = done.norm;
    if (scaled) vescomm::check(vescomm_fsdp_update_loss_scale(&state_.loss_scale, done.skipped));
    result.after = engine_.counters();
    result.summary = engine_.step_summary();
    result.seconds = vescomm_trace_get_seconds() - begin;
    result.exposed_seconds = result.after.exposed_seconds - result.before.exposed_seconds;
    // The counters omit operations that are too short to be timed; the engine's clock includes
    // them.
    result.communication_seconds =
        std::max(communication_seconds(engine_.comm()) - communication, result.exposed_seconds);
    return result;
}

std::vector<std::byte> Trainer::extra() const {
    std::vector<std::byte> bytes(sizeof state_);
    std::memcpy(bytes.data(), &state_, sizeof state_);
    return bytes;
}

int Trainer::set_extra_of_checkpoint() {
    // Rank 0 of the job that saved has the same bytes as its other ranks.
    const auto bytes = engine_.extra(0);
    if (bytes.size() != sizeof state_)
        throw std::runtime_error(fmt::format(
            "the checkpoint has {} bytes of a program, and train_gpt saves {}; it was saved by "
            "another program or version",
            bytes.size(), sizeof state_));
    std::memcpy(&state_, bytes.data(), sizeof state_);
    skipped_before_ = 0;
    skipped_before_ = state_.skipped - skipped();
    return static_cast<int>(state_.steps);
}

// The engine completes the last step of any survivor, so its counter is the same on all of them.
std::int64_t Trainer::skipped() const {
    return skipped_before_ + static_cast<std::int64_t>(engine_.counters().skipped);
}

double Trainer::held_out_loss() {
    const int sequences = text_.held_out_sequences();
    double loss_sum = 0;
    // One micro-batch at a time, the size that the model is made for.
    const int size = largest_part(options_.batch, options_.accumulate);
    for (int first = 0; first < sequences; first += size) {
        const Share share = share_of(std::min(size, sequences - first), rank_, ranks_);
        engine_.begin(VESCOMM_FSDP_EVAL);
        forward(text_.held_out({first + share.begin, first + share.end}));
        loss_sum += model_.loss_sum();
    }
    return sum_over_ranks(*comm_, loss_sum) /
           (static_cast<double>(sequences) * options_.shape.context);
}

}  // namespace train_gpt
