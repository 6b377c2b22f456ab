// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Applies the optimizers of the groups to this rank's shards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fsdp/engine/device/streams.h"
#include "fsdp/engine/shards.h"
#include "fsdp/engine/update_threads.h"
#include "fsdp/spec/model_plan.h"
#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

// Consecutive elements of a bucket whose parameters are in one group.
struct OptimizerRun {
    std::size_t group = 0;
    std::size_t bucket = 0;
    std::int64_t offset = 0;  // in the shard of the bucket
    std::int64_t elements = 0;
    std::vector<vescomm_optimizer_piece_t> pieces;  // offsets and blocks within the run
    std::vector<void *> states;  // of the optimizer, from the first element of the run on
    std::int64_t block = 0;  // first one of the run among the blocks of the shard
    bool matrix = false;  // one matrix, for vescomm_optimizer_kind_t.matrix
};

// Divides the shard of a rank into runs.
std::vector<OptimizerRun> make_runs(const Spec &spec, const ModelPlan &plan, int position);
// Divides a run into parts of about `elements` elements, between blocks of `block` elements; -1:
// between matrices.
std::vector<OptimizerRun> divide_run(const OptimizerRun &run, std::int64_t elements,
                                     std::int64_t block);

// Divides a run into its matrices, and the parts between them.
std::vector<OptimizerRun> divide_matrices(const OptimizerRun &run, std::int64_t block);

class Optimizer {
public:
    // `plan`, `shards` and `streams` must outlive the optimizer. `streams`: nullptr if the host
    // updates the shards, by `threads`.
    Optimizer(const Spec &spec, const ModelPlan &plan, const Shards &shards, int rank,
              std::shared_ptr<UpdateThreads> threads, device::Streams *streams = nullptr);

    // Returns a group with other settings. Throws Failure if it needs other states.
    Group with_settings(std::size_t group, const void *settings) const;
    // Replaces the settings of a group by those of with_settings().
    void set_group(std::size_t group, Group &&made) noexcept {
        groups_[group].settings = std::move(made.settings);
    }
    // Declares that all ranks have the settings of now.
    void agree_on_settings();
    // Returns to the settings that all ranks had last.
    void restore_settings();

    // Updates the shards of `units`, which are all units, one after the other, and calls
    // updated(unit) after each. Throws Failure if a kind fails.
    void step(float gradient_scale, double learning_rate_scale, std::span<const int> units,
              const std::function<void(std::size_t unit)> &updated);

    std::int64_t steps() const { return steps_; }
    // The number of steps of a checkpoint.
    void set_steps(std::int64_t steps) { steps_ = steps; }
    const std::vector<Group> &groups() const { return groups_; }
    const std::shared_ptr<UpdateThreads> &threads() const { return threads_; }

private:
    void update(std::size_t bucket, float gradient_scale, double learning_rate_scale);
    // Returns the result of the kind.
    int update(const OptimizerRun &run, float gradient_scale, double learning_rate_scale) const;

    const ModelPlan &plan_;
    const Shards &shards_;
    std::shared_ptr<UpdateThreads> threads_;
    device::Streams *streams_;
    std::vector<Group> groups_;
    std::vector<std::vector<std::byte>> agreed_;  // by group: settings that all ranks had last
    std::vector<OptimizerRun> runs_;  // those of a bucket are consecutive
    std::vector<std::span<const OptimizerRun>> runs_of_;  // by bucket
    std::vector<int> results_;  // of the runs of one bucket
    std::int64_t steps_ = 0;
};

}  // namespace vescomm::fsdp
