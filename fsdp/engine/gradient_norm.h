// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The exact sum of squares of the gradient shards of all ranks. A unit is added as soon as its
// gradients are complete, while the sums of other units are running.
#pragma once

#include <cstddef>
#include <vector>

#include "fsdp/engine/comms.h"
#include "fsdp/engine/parts.h"
#include "fsdp/engine/phase_times.h"
#include "fsdp/engine/shards.h"
#include "fsdp/norm/exact_sum.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

class GradientNorm : public NormMemory {
public:
    // All arguments must outlive the norm.
    GradientNorm(const ModelPlan &plan, const Shards &shards, Comms &comms, PhaseTimes &times);

    void begin(bool last) override;
    // The sum of a unit over the shard group is complete.
    void add(std::size_t unit);
    // Adds the units that were not added.
    void finish() override;
    double squares() override;

private:
    void add_squares(std::size_t unit);

    const ModelPlan &plan_;
    const Shards &shards_;
    Comms &comms_;
    PhaseTimes &times_;
    bool at_once_ = false;  // sums over the shard group complete the gradients
    std::vector<bool> added_;  // by unit
    ExactSum sum_;
};

}  // namespace vescomm::fsdp
