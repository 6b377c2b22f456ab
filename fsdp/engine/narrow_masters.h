// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Masters in bf16 or f16, as optimizers see them: f32 copies of one run at a time, rounded after
// its step.
//
//     masters ──widen──► copy of a run, f32 ──kind──► copy ──round──► masters
//
// A copy of at most stack_elements is on the stack of the thread that updates the run. A larger one
// is in memory of the engine, for one such run at a time. A kernel that updates masters in device
// memory converts each element itself, and takes its random bits from stream().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fsdp/engine/optimizer_runs.h"
#include "fsdp/engine/shards.h"
#include "fsdp/optimizers/stochastic_rounding.h"
#include "fsdp/spec/model_plan.h"
#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

// 32 KiB: it stays in the first cache, and fits on every stack.
inline constexpr std::int64_t stack_elements = 8192;
// The size of divided runs, whose last block may go beyond it.
inline constexpr std::int64_t max_stack_block = 256;
inline constexpr std::int64_t divided_stack_elements = stack_elements - max_stack_block + 1;

// True if every run of a group can be divided into runs of at most stack_elements.
bool fits_stack(const Group &group);

// Elements of the largest run of a position that does not fit. 0 if masters are f32.
std::int64_t heap_elements(const Spec &spec, const ModelPlan &plan, int position);

class NarrowMasters {
public:
    // `runs`: those whose masters are widened; none if a device updates them.
    NarrowMasters(const Spec &spec, std::span<const OptimizerRun> runs);

    // True if masters are not in f32.
    bool narrow() const { return type_ != VESCOMM_F32; }
    vescomm_type_t type() const { return type_; }
    // True if masters are rounded by random bits, which stream() has.
    bool stochastic() const { return round_ != nullptr; }
    // The stream of random bits of a parameter in a step. Masters must be stochastic().
    std::uint64_t stream(std::size_t parameter, std::int64_t step) const {
        return rounding_stream(keys_[parameter], step);
    }
    // Memory for the copy of a run that is larger than stack_elements.
    float *heap() const { return reinterpret_cast<float *>(heap_.data()); }
    // The masters of a run in f32.
    void widen(const OptimizerRun &run, const std::byte *masters, float *copy) const;
    // Rounds a copy of the masters of a run after a step.
    void round(const OptimizerRun &run, const float *copy, std::byte *masters,
               std::int64_t step) const;

    std::uint64_t bytes() const { return heap_.size(); }

private:
    vescomm_type_t type_;
    RoundLoop *round_ = nullptr;  // nullptr: masters are f32, or rounded to the nearest
    std::vector<std::uint64_t> keys_;  // of parameters, for round_
    AlignedBytes heap_;
};

}  // namespace vescomm::fsdp
