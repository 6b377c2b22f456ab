// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/optimizer.h"

#include "fsdp/engine/device/adamw.h"
#include "fsdp/error.h"
#include "fsdp/spec/group.h"

namespace vescomm::fsdp {

std::vector<OptimizerRun> make_runs(const Spec &spec, const ModelPlan &plan, int position) {
    std::vector<OptimizerRun> runs;
    for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
        if (!plan.buckets[bucket].trainable) continue;
        for (vescomm_optimizer_piece_t piece : plan.buckets[bucket].pieces(position)) {
            const std::size_t group = *spec.parameters()[piece.parameter].group;
            if (runs.empty() || runs.back().bucket != bucket || runs.back().group != group)
                runs.push_back({group, bucket, piece.offset, 0, {}, {}});
            OptimizerRun &run = runs.back();
            piece.offset -= run.offset;
            run.elements = piece.offset + piece.elements;
            run.pieces.push_back(piece);
        }
    }
    return runs;
}

Optimizer::Optimizer(const Spec &spec, const ModelPlan &plan, const Shards &shards, int rank,
                     device::Streams *streams)
    : plan_(plan),
      shards_(shards),
      streams_(streams),
      groups_(spec.groups()),
      runs_(make_runs(spec, plan, plan.mesh.position(rank))),
      runs_of_(plan.buckets.size()) {
    for (const Group &group : groups_) agreed_.push_back(group.settings);
    for (OptimizerRun &run : runs_) {
        const std::vector<vescomm_type_t> &types = plan.buckets[run.bucket].states;
        for (std::size_t state = 0; state < types.size(); ++state)
            run.states.push_back(static_cast<std::byte *>(shards.state(run.bucket, state)) +
                                 static_cast<std::size_t>(run.offset) *
                                     vescomm_type_get_bytes(types[state]));
    }
    for (std::size_t begin = 0, end = 0; begin < runs_.size(); begin = end) {
        while (end < runs_.size() && runs_[end].bucket == runs_[begin].bucket) ++end;
        runs_of_[runs_[begin].bucket] = std::span(runs_).subspan(begin, end - begin);
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
            for (const OptimizerRun &run : runs_of_[bucket])
                update(run, gradient_scale, learning_rate_scale);
            if (!runs_of_[bucket].empty()) shards_.rest(bucket);
        }
        if (updated) updated(static_cast<std::size_t>(units[number]));
    }
}

void Optimizer::update(const OptimizerRun &part, float gradient_scale,
                       double learning_rate_scale) const {
    const Group &group = groups_[part.group];
    vescomm_optimizer_run_t run = vescomm_optimizer_run_init();
    run.states = static_cast<std::uint32_t>(part.states.size());
    run.elements = part.elements;
    run.pieces = part.pieces.data();
    run.piece_count = part.pieces.size();
    run.master = shards_.master(part.bucket).data() + part.offset;
    run.gradient = shards_.gradient(part.bucket).data() + part.offset;
    run.state = part.states.data();
    run.step = steps_;
    run.learning_rate_scale = learning_rate_scale;
    run.gradient_scale = gradient_scale;
    if (streams_ != nullptr) return device::update(group, run, *streams_);
    const int result = group.kind.step(group.kind.context, group.settings.data(), &run);
    if (result != 0)
        refuse("optimizer \"{}\" returned {} for a run of {} elements", group.kind.name, result,
               part.elements);
}

}  // namespace vescomm::fsdp
