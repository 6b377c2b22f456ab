// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/optimizer.h"

#include <algorithm>

#include "execute/kernels.h"
#include "fsdp/engine/device/update.h"
#include "fsdp/error.h"
#include "fsdp/spec/group.h"

namespace vescomm::fsdp {

namespace {

// The work of one thread at a time: about 0.1 ms of AdamW, far above the time of waking a thread.
constexpr std::int64_t divided_elements = std::int64_t{1} << 15;

// `threads`: that update shards; 0: a device does.
std::vector<OptimizerRun> runs_for(const Spec &spec, const ModelPlan &plan, int rank, int threads) {
    std::vector<OptimizerRun> runs = make_runs(spec, plan, plan.mesh.position(rank));
    if (threads == 0) return divide_for_device(std::move(runs), spec);
    std::int64_t elements = threads > 1 ? divided_elements : 0;
    if (spec.options().master_type != VESCOMM_F32) elements = divided_stack_elements;
    return divide_runs(std::move(runs), spec, elements);
}

}  // namespace

Optimizer::Optimizer(const Spec &spec, const ModelPlan &plan, const Shards &shards, int rank,
                     std::shared_ptr<UpdateThreads> threads, device::Streams *streams)
    : spec_(spec),
      plan_(plan),
      shards_(shards),
      threads_(std::move(threads)),
      streams_(streams),
      groups_(spec.groups()),
      runs_(runs_for(spec, plan, rank, streams_ == nullptr ? threads_->threads() : 0)),
      runs_of_(plan.buckets.size()),
      narrow_(spec, streams_ == nullptr ? std::span(runs_) : std::span<OptimizerRun>()) {
    for (const Group &group : groups_) agreed_.push_back(group.settings);
    for (OptimizerRun &run : runs_) {
        const std::vector<StateType> &types = plan.buckets[run.bucket].states;
        for (std::size_t state = 0; state < types.size(); ++state) {
            const std::int64_t first = types[state].per_block ? run.block : run.offset;
            run.states.push_back(static_cast<std::byte *>(shards.state(run.bucket, state)) +
                                 static_cast<std::size_t>(first) * types[state].bytes());
        }
    }
    for (std::size_t begin = 0, end = 0; begin < runs_.size(); begin = end) {
        while (end < runs_.size() && runs_[end].bucket == runs_[begin].bucket) ++end;
        runs_of_[runs_[begin].bucket] = std::span(runs_).subspan(begin, end - begin);
        results_.resize(std::max(results_.size(), end - begin));
    }
}

Group Optimizer::with_settings(std::size_t group, const void *settings) const {
    if (group >= groups_.size())
        refuse("there is no group {}; there are {}, counted from 0", group, groups_.size());
    Group made = fsdp::with_settings(groups_[group], settings);
    if (made.states != groups_[group].states)
        refuse(
            "the settings need {} states and the group has {}, or their types differ; create "
            "another engine",
            made.states.size(), groups_[group].states.size());
    if (made.block_elements != groups_[group].block_elements)
        refuse(
            "the settings need blocks of {} elements and the group has {}; create another engine",
            made.block_elements, groups_[group].block_elements);
    return made;
}

// Settings of a group keep their size, so these copies allocate nothing.
void Optimizer::agree_on_settings() {
    for (std::size_t group = 0; group < groups_.size(); ++group)
        agreed_[group] = groups_[group].settings;
}

void Optimizer::restore_settings() {
    for (std::size_t group = 0; group < groups_.size(); ++group)
        groups_[group].settings = agreed_[group];
}

void Optimizer::step(float gradient_scale, double learning_rate_scale, std::span<const int> units,
                     const std::function<void(std::size_t unit)> &updated) {
    ++steps_;
    for (std::size_t number = 0; number < units.size(); ++number) {
        // The disk reads the next unit while this one is updated, and writes the one before.
        if (number + 1 < units.size())
            for (const std::size_t bucket : plan_.of_unit[units[number + 1]])
                if (!runs_of_[bucket].empty()) shards_.will_need(bucket);
        for (const std::size_t bucket : plan_.of_unit[units[number]]) {
            update(bucket, gradient_scale, learning_rate_scale);
            if (!runs_of_[bucket].empty()) shards_.rest(bucket);
        }
        if (updated) updated(static_cast<std::size_t>(units[number]));
    }
}

void Optimizer::update(std::size_t bucket, float gradient_scale, double learning_rate_scale) {
    const std::span<const OptimizerRun> runs = runs_of_[bucket];
    const auto job = [&](std::size_t index) {
        if (concurrent(runs[index]))
            results_[index] = update(runs[index], gradient_scale, learning_rate_scale);
    };
    if (std::ranges::any_of(runs, [&](const OptimizerRun &run) { return concurrent(run); }))
        threads_->run(runs.size(), job);
    for (std::size_t index = 0; index < runs.size(); ++index) {
        const OptimizerRun &run = runs[index];
        if (!concurrent(run)) results_[index] = update(run, gradient_scale, learning_rate_scale);
        if (results_[index] != 0) refuse_result(run, results_[index]);
    }
}

void Optimizer::refuse_result(const OptimizerRun &run, int result) const {
    const vescomm_optimizer_piece_t &first = run.pieces.front();
    refuse(
        "optimizer \"{}\" returned {} for a run of {} elements, which begins at element {} of "
        "parameter \"{}\" of unit \"{}\"",
        groups_[run.group].kind.name, result, run.elements, first.first,
        spec_.parameters()[first.parameter].name,
        spec_.units()[plan_.buckets[run.bucket].unit].name);
}

bool Optimizer::concurrent(const OptimizerRun &run) const {
    // There is memory for the copy of one large run.
    const bool alone = narrow_.narrow() && run.elements > stack_elements;
    return streams_ == nullptr && groups_[run.group].kind.concurrent != 0 && !alone;
}

int Optimizer::update(const OptimizerRun &run, float gradient_scale,
                      double learning_rate_scale) const {
    std::byte *masters = shards_.master(run.bucket).at(run.offset);
    if (!narrow_.narrow() || streams_ != nullptr)
        return update(run, gradient_scale, learning_rate_scale, reinterpret_cast<float *>(masters));
    alignas(64) float stack[stack_elements];
    float *copy = run.elements > stack_elements ? narrow_.heap() : stack;
    narrow_.widen(run, masters, copy);
    const int result = update(run, gradient_scale, learning_rate_scale, copy);
    if (result == 0) narrow_.round(run, copy, masters, steps_);
    return result;
}

int Optimizer::update(const OptimizerRun &part, float gradient_scale, double learning_rate_scale,
                      float *masters) const {
    const Group &group = groups_[part.group];
    vescomm_optimizer_run_t run = vescomm_optimizer_run_init();
    run.states = static_cast<std::uint32_t>(part.states.size());
    run.elements = part.elements;
    run.pieces = part.pieces.data();
    run.piece_count = part.pieces.size();
    run.master = masters;
    run.gradient = shards_.gradient(part.bucket).data() + part.offset;
    run.state = part.states.data();
    run.step = steps_;
    run.learning_rate_scale = learning_rate_scale;
    run.gradient_scale = gradient_scale;
    if (streams_ != nullptr) return device::update(group, run, part.matrix, narrow_, *streams_);
    const auto update = part.matrix ? group.kind.matrix : group.kind.step;
    return update(group.kind.context, group.settings.data(), &run);
}

}  // namespace vescomm::fsdp
