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
#include "fsdp/engine/narrow_masters.h"
#include "fsdp/engine/optimizer_runs.h"
#include "fsdp/engine/shards.h"
#include "fsdp/engine/update_threads.h"
#include "fsdp/spec/model_plan.h"
#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

class Optimizer {
public:
    // All arguments must outlive the optimizer. `streams`: nullptr if the host updates the shards,
    // by `threads`.
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
    std::uint64_t bytes() const { return narrow_.bytes(); }

private:
    void update(std::size_t bucket, float gradient_scale, double learning_rate_scale);
    [[noreturn]] void refuse_result(const OptimizerRun &run, int result) const;
    // Returns the result of the kind.
    int update(const OptimizerRun &run, float gradient_scale, double learning_rate_scale) const;
    int update(const OptimizerRun &run, float gradient_scale, double learning_rate_scale,
               float *masters) const;
    // True if several threads may update runs of this kind at the same time.
    bool concurrent(const OptimizerRun &run) const;

    const Spec &spec_;
    const ModelPlan &plan_;
    const Shards &shards_;
    std::shared_ptr<UpdateThreads> threads_;
    device::Streams *streams_;
    std::vector<Group> groups_;
    std::vector<std::vector<std::byte>> agreed_;  // by group: settings that all ranks had last
    std::vector<OptimizerRun> runs_;  // those of a bucket are consecutive
    std::vector<std::span<const OptimizerRun>> runs_of_;  // by bucket
    NarrowMasters narrow_;
    std::vector<int> results_;  // of the runs of one bucket
    std::int64_t steps_ = 0;
};

}  // namespace vescomm::fsdp
