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

// Puts the quantisation of runs on a stream. `from`: elements of `type`, from number `first` of the
// bucket on. Codes and scales go to their places in `codes`.
void quantise_runs(std::span<const GatherRun> runs, vescomm_type_t code_type, const std::byte *from,
                   vescomm_type_t type, std::int64_t first, std::byte *codes, cuda::Stream stream);

inline float *scales_at(std::byte *codes, const GatherRun &run) {
    return reinterpret_cast<float *>(codes + run.scales);
}

class Codes {
public:
    // All arguments must outlive the object. Collective.
    Codes(const ModelPlan &plan, int position, std::span<const std::string> unit_names,
          Links &links);

    // The code slot that a unit slot uses; -1: none.
    int slot_for(int unit_slot) const { return plan_.code_slot_for(unit_slot); }
    const SlotBuffers &buffers() const { return buffers_; }
    // Puts the conversion of a bucket in a code slot on a stream. `masters`: those of this rank, as
    // kernels read them. `to`: the bucket in its slot.
    void quantise(int slot, std::size_t bucket, const Masters &masters, cuda::Stream stream) const;
    void dequantise(int slot, std::size_t bucket, std::byte *to, cuda::Stream stream) const;

private:
    const ModelPlan &plan_;
    int position_;
    SlotBuffers buffers_;
    std::vector<std::vector<GatherRun>> own_, all_;  // by bucket: of this rank's shard, of all
};

}  // namespace vescomm::fsdp::device
