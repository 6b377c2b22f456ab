// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/optimizer.h"

#include <algorithm>
#include <iterator>

#include "fsdp/engine/device/adamw.h"
#include "fsdp/error.h"
#include "fsdp/spec/group.h"

namespace vescomm::fsdp {

namespace {

// The work of one thread at a time: about 0.1 ms of AdamW, far above the time of waking a thread.
constexpr std::int64_t divided_elements = std::int64_t{1} << 15;

// The number of elements from the beginning of a piece to the end of the block that has the element
// number `wanted`, counted from 1. Blocks are counted within their matrix.
std::int64_t whole_blocks(const vescomm_optimizer_piece_t &piece, std::int64_t wanted,
                          std::int64_t block) {
    const std::int64_t matrix = piece.rows * piece.columns;
    const std::int64_t length =
        block < 0 ? matrix : std::min(std::max<std::int64_t>(block, 1), matrix);
    const std::int64_t last = piece.first + wanted - 1;  // in the parameter
    const std::int64_t begin = last / matrix * matrix;  // of its matrix
    const std::int64_t end = (last - begin) / length * length + length;
    return begin + std::min(end, matrix) - piece.first;
}

// Begins a part of a run with the rest of one of its pieces.
OptimizerRun part_from(const OptimizerRun &run, const vescomm_optimizer_piece_t &piece) {
    OptimizerRun part;
    part.group = run.group;
    part.bucket = run.bucket;
    part.offset = run.offset + piece.offset;
    part.block = run.block + piece.block;
    return part;
}

// Moves the first elements of a piece of a run to a part of the run.
void move_elements(const OptimizerRun &run, vescomm_optimizer_piece_t &piece, OptimizerRun &part,
                   std::int64_t elements, std::int64_t block) {
    vescomm_optimizer_piece_t own = piece;
    own.offset = run.offset + piece.offset - part.offset;
    own.elements = elements;
    own.block = run.block + piece.block - part.block;
    part.pieces.push_back(own);
    part.elements = own.offset + own.elements;
    piece.block += blocks_of(own, block);
    piece.first += elements;
    piece.offset += elements;
    piece.elements -= elements;
}

// `threads`: several threads update the runs of concurrent kinds.
std::vector<OptimizerRun> divide_runs(std::vector<OptimizerRun> &&runs,
                                      const std::vector<Group> &groups, bool threads) {
    std::vector<OptimizerRun> divided;
    for (OptimizerRun &run : runs) {
        const Group &group = groups[run.group];
        std::vector<OptimizerRun> parts;
        if (group.kind.matrix != nullptr) parts = divide_matrices(run, group.block_elements);
        else parts.push_back(std::move(run));
        for (OptimizerRun &part : parts) {
            if (!threads || part.matrix || group.kind.concurrent == 0) {
                divided.push_back(std::move(part));
            } else {
                std::ranges::move(divide_run(part, divided_elements, group.block_elements),
                                  std::back_inserter(divided));
            }
        }
    }
    return divided;
}

}  // namespace

std::vector<OptimizerRun> make_runs(const Spec &spec, const ModelPlan &plan, int position) {
    std::vector<OptimizerRun> runs;
    for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
        if (!plan.buckets[bucket].trainable) continue;
        for (vescomm_optimizer_piece_t piece : plan.buckets[bucket].pieces(position)) {
            const std::size_t group = *spec.parameters()[piece.parameter].group;
            if (runs.empty() || runs.back().bucket != bucket || runs.back().group != group)
                runs.push_back({group, bucket, piece.offset, 0, {}, {}, piece.block});
            OptimizerRun &run = runs.back();
            piece.offset -= run.offset;
            piece.block -= run.block;
            run.elements = piece.offset + piece.elements;
            run.pieces.push_back(piece);
        }
    }
    return runs;
}

std::vector<OptimizerRun> divide_run(const OptimizerRun &run, std::int64_t elements,
                                     std::int64_t block) {
    std::vector<OptimizerRun> parts;
    for (vescomm_optimizer_piece_t piece : run.pieces)
        while (piece.elements > 0) {
            if (parts.empty() || parts.back().elements >= elements)
                parts.push_back(part_from(run, piece));
            OptimizerRun &part = parts.back();
            const std::int64_t more = whole_blocks(piece, elements - part.elements, block);
            move_elements(run, piece, part, std::min(piece.elements, more), block);
        }
    return parts;
}

std::vector<OptimizerRun> divide_matrices(const OptimizerRun &run, std::int64_t block) {
    std::vector<OptimizerRun> parts;
    for (vescomm_optimizer_piece_t piece : run.pieces) {
        const bool matrix = (piece.flags & VESCOMM_FSDP_MATRIX) != 0;
        while (piece.elements > 0) {
            if (parts.empty() || matrix || parts.back().matrix) {
                parts.push_back(part_from(run, piece));
                parts.back().matrix = matrix;
            }
            move_elements(run, piece, parts.back(),
                          matrix ? piece.rows * piece.columns : piece.elements, block);
        }
    }
    return parts;
}

Optimizer::Optimizer(const Spec &spec, const ModelPlan &plan, const Shards &shards, int rank,
                     std::shared_ptr<UpdateThreads> threads, device::Streams *streams)
    : plan_(plan),
      shards_(shards),
      threads_(std::move(threads)),
      streams_(streams),
      groups_(spec.groups()),
      runs_(make_runs(spec, plan, plan.mesh.position(rank))),
      runs_of_(plan.buckets.size()) {
    if (streams_ == nullptr)
        runs_ = divide_runs(std::move(runs_), groups_, threads_->threads() > 1);
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
    const auto concurrent = [&](const OptimizerRun &run) {
        return streams_ == nullptr && groups_[run.group].kind.concurrent != 0;
    };
    const auto job = [&](std::size_t index) {
        if (concurrent(runs[index]))
            results_[index] = update(runs[index], gradient_scale, learning_rate_scale);
    };
    if (std::ranges::any_of(runs, concurrent)) threads_->run(runs.size(), job);
    for (std::size_t index = 0; index < runs.size(); ++index) {
        const OptimizerRun &run = runs[index];
        if (!concurrent(run)) results_[index] = update(run, gradient_scale, learning_rate_scale);
        if (results_[index] != 0)
            refuse("optimizer \"{}\" returned {} for a run of {} elements",
                   groups_[run.group].kind.name, results_[index], run.elements);
    }
}

int Optimizer::update(const OptimizerRun &part, float gradient_scale,
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
    const auto update = part.matrix ? group.kind.matrix : group.kind.step;
    if (streams_ == nullptr) return update(group.kind.context, group.settings.data(), &run);
    device::update(group, run, *streams_);
    return 0;
}

}  // namespace vescomm::fsdp
