// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Gathers of parameters in 8 bits on device memory: code slots, and the kernels on the gather
// stream that convert.
//
//     quantise     masters ──► codes and scales of this rank, at their place in the code slot
//     dequantise   codes and scales of all ranks ──► slot
//
// A kernel converts consecutive runs (fsdp/spec/gather_codes.h) whose blocks are equal. Codes and
// scales are those of host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fsdp/engine/device/slot_buffers.h"
#include "fsdp/engine/shards.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp::device {

// Joins consecutive runs of one shard whose blocks one kernel can convert, and divides runs whose
// blocks begin again after a part of a block. The result covers the same elements with the same
// blocks; `period` of each is its number of elements. Pure.
std::vector<GatherRun> kernel_runs(std::span<const GatherRun> runs);

class Codes {
public:
    // All arguments must outlive the object. Collective.
    Codes(const ModelPlan &plan, const Shards &shards, int position,
          std::span<const std::string> unit_names, Links &links);

    // The code slot that a unit slot uses; -1: none.
    int slot_for(int unit_slot) const { return plan_.code_slot_for(unit_slot); }
    const SlotBuffers &buffers() const { return buffers_; }
    // Puts the conversion of a bucket in a code slot on a stream. `to`: the bucket in its slot.
    void quantise(int slot, std::size_t bucket, cuda::Stream stream) const;
    void dequantise(int slot, std::size_t bucket, std::byte *to, cuda::Stream stream) const;

private:
    const ModelPlan &plan_;
    const Shards &shards_;
    int position_;
    SlotBuffers buffers_;
    std::vector<std::vector<GatherRun>> own_, all_;  // by bucket: of this rank's shard, of all
};

}  // namespace vescomm::fsdp::device
