// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Slots on device memory: their sizes, and where buckets lie in them. Engines allocate them, and
// reports count them. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "fsdp/spec/model_plan.h"
#include "vescomm/gpu.h"

namespace vescomm::fsdp::device {

enum class SlotUse {
    parameters,  // of the ranks that gather a unit; those in 8 bits have memory and no buffer,
                 // replicated ones have neither
    codes,  // of parameters that are gathered in 8 bits, of the same ranks
    gradients,  // of the ranks that shard a unit; those in 8 bits and replicated ones have memory
                // and no buffer
};

class SlotPlan {
public:
    // `plan` must outlive the object. Throws Failure if a bucket has a type without device buffers.
    SlotPlan(const ModelPlan &plan, SlotUse use);

    SlotUse use() const { return use_; }
    // By slot.
    const std::vector<std::uint64_t> &sizes() const { return sizes_; }
    UnitKind kind(std::size_t slot) const { return kinds_[slot]; }
    std::uint64_t bytes() const;
    // The slots that a unit may use.
    std::vector<int> slots_of(std::size_t unit) const;
    // Bytes before a bucket with memory in its slots.
    std::uint64_t offset(std::size_t bucket) const { return offsets_[bucket]; }
    // True if the bucket has memory.
    bool has(std::size_t bucket) const;
    // True if it has a buffer, too.
    bool travels(std::size_t bucket) const;
    vescomm_type_t type(std::size_t bucket) const;
    Layout layout(std::size_t bucket) const;
    // Options of the buffer of a bucket, without its memory and name.
    vescomm_gpu_buffer_options_t options(std::size_t bucket) const;

private:
    std::uint64_t bytes_of(std::size_t bucket) const;

    const ModelPlan &plan_;
    SlotUse use_;
    std::vector<std::uint64_t> sizes_;  // by slot
    std::vector<UnitKind> kinds_;  // by slot: dense units and experts have slots of their own
    std::vector<std::uint64_t> offsets_;  // by bucket
};

}  // namespace vescomm::fsdp::device
