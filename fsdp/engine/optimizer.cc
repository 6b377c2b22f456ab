// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/optimizer.h"

#include <cstring>

#include "fsdp/error.h"

namespace vescomm::fsdp {

std::vector<OptimizerRun> make_runs(const Spec &spec, const ModelPlan &plan, int position) {
    std::vector<OptimizerRun> runs;
    for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
        if (!plan.buckets[bucket].trainable) continue;
        for (vescomm_optimizer_piece_t piece : plan.buckets[bucket].pieces(position)) {
            const std::size_t group = *spec.parameters()[piece.parameter].group;
            if (runs.empty() || runs.back().bucket != bucket || runs.back().group != group)
                runs.push_back({group, bucket, piece.offset, 0, {}});
            OptimizerRun &run = runs.back();
            piece.offset -= run.offset;
            run.elements = piece.offset + piece.elements;
            run.pieces.push_back(piece);
        }
    }
    return runs;
}

Optimizer::Optimizer(const Spec &spec, const ModelPlan &plan, const Shards &shards, int rank)
    : shards_(shards),
      groups_(spec.groups()),
      runs_(make_runs(spec, plan, plan.mesh.position(rank))) {
    for (const Bucket &bucket : plan.buckets) {
        state_bytes_.emplace_back();
        for (const vescomm_type_t type : bucket.states)
            state_bytes_.back().push_back(vescomm_type_get_bytes(type));
    }
}

void Optimizer::set_group(std::size_t group, const void *settings) {
    if (group >= groups_.size())
        refuse("there is no group {}; there are {}, counted from 0", group, groups_.size());
    Group made = make_group(groups_[group].kind, settings);
    const vescomm_optimizer_needs_t &old = groups_[group].needs;
    bool same = made.needs.states == old.states;
    for (std::uint32_t state = 0; same && state < old.states; ++state)
        same = made.needs.types[state] == old.types[state];
    if (!same)
        refuse("the settings need {} states and the group has {}; create another engine",
               made.needs.states, old.states);
    groups_[group] = std::move(made);
}

void Optimizer::step(float gradient_scale, double learning_rate_scale) {
    ++steps_;
    for (const OptimizerRun &part : runs_) {
        const Group &group = groups_[part.group];
        void *states[VESCOMM_OPTIMIZER_MAX_STATES] = {};
        vescomm_optimizer_run_t run{};
        run.struct_size = sizeof run;
        run.states = group.needs.states;
        for (std::uint32_t state = 0; state < run.states; ++state)
            states[state] =
                static_cast<std::byte *>(shards_.state(part.bucket, state)) +
                static_cast<std::size_t>(part.offset) * state_bytes_[part.bucket][state];
        run.elements = part.elements;
        run.pieces = part.pieces.data();
        run.piece_count = part.pieces.size();
        run.master = shards_.master(part.bucket).data() + part.offset;
        run.gradient = shards_.gradient(part.bucket).data() + part.offset;
        run.state = states;
        run.step = steps_;
        run.learning_rate_scale = learning_rate_scale;
        run.gradient_scale = gradient_scale;
        const int result = group.kind->step(group.kind->context, group.settings.data(), &run);
        if (result != 0)
            refuse("optimizer \"{}\" returned {} for a run of {} elements", group.kind->name,
                   result, part.elements);
    }
}

}  // namespace vescomm::fsdp
