// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/device/codes.h"

#include "fsdp/engine/code_runs.h"
#include "fsdp/quantise/block_quantise.h"
#include "vescomm/gpu_kernels.h"

namespace vescomm::fsdp::device {

namespace {

// Appends a run of equal blocks, or adds it to the last one.
void append(std::vector<GatherRun> &runs, GatherRun run) {
    run.period = run.elements;
    if (!runs.empty()) {
        GatherRun &last = runs.back();
        const auto elements = static_cast<std::uint64_t>(last.elements);
        const std::uint64_t scales = blocks_of(elements, static_cast<std::size_t>(last.block));
        if (last.block == run.block && last.elements % last.block == 0 &&
            run.offset == last.offset + last.elements && run.codes == last.codes + elements &&
            run.scales == last.scales + scales * sizeof(float)) {
            last.elements += run.elements;
            last.period = last.elements;
            return;
        }
    }
    runs.push_back(run);
}

}  // namespace

std::vector<GatherRun> kernel_runs(std::span<const GatherRun> runs) {
    std::vector<GatherRun> made;
    for (const GatherRun &run : runs) {
        for_equal_blocks(run, [&](std::int64_t first, std::int64_t count, std::int64_t scale) {
            GatherRun part = run;
            part.elements = count;
            part.offset += first;
            part.codes += static_cast<std::uint64_t>(first);
            part.scales += static_cast<std::uint64_t>(scale) * sizeof(float);
            append(made, part);
        });
    }
    return made;
}

void quantise_runs(std::span<const GatherRun> runs, vescomm_type_t code_type, const std::byte *from,
                   vescomm_type_t type, std::int64_t first, std::byte *codes, cuda::Stream stream) {
    const std::size_t size = vescomm_type_get_bytes(type);
    for (const GatherRun &run : runs)
        check(vescomm_gpu_quantise(codes + run.codes, scales_at(codes, run), code_type,
                                   from + static_cast<std::size_t>(run.offset - first) * size, type,
                                   run.elements, run.block, stream));
}

Codes::Codes(const ModelPlan &plan, int position, std::span<const std::string> unit_names,
             Links &links)
    : plan_(plan),
      position_(position),
      buffers_(plan, position, SlotUse::codes, unit_names, links),
      own_(plan.buckets.size()),
      all_(plan.buckets.size()) {
    for (std::size_t index = 0; index < plan.buckets.size(); ++index) {
        const Bucket &bucket = plan.buckets[index];
        if (!bucket.quantised()) continue;
        const GatherCodes &codes = bucket.codes;
        const auto shard = static_cast<std::size_t>(bucket.shard_number(position));
        const std::span runs(codes.runs);
        own_[index] = kernel_runs(runs.subspan(
            codes.first_run[shard], codes.first_run[shard + 1] - codes.first_run[shard]));
        all_[index] = kernel_runs(runs);
    }
}

void Codes::quantise(int slot, std::size_t bucket, const Masters &masters,
                     cuda::Stream stream) const {
    const Bucket &planned = plan_.buckets[bucket];
    quantise_runs(own_[bucket], planned.gather_type, masters.data, masters.type,
                  planned.begin(position_), buffers_.data(slot, bucket), stream);
}

void Codes::dequantise(int slot, std::size_t bucket, std::byte *to, cuda::Stream stream) const {
    const Bucket &planned = plan_.buckets[bucket];
    const std::size_t size = vescomm_type_get_bytes(planned.type);
    std::byte *codes = buffers_.data(slot, bucket);
    for (const GatherRun &run : all_[bucket])
        check(vescomm_gpu_dequantise(to + static_cast<std::size_t>(run.offset) * size, planned.type,
                                     codes + run.codes, scales_at(codes, run), planned.gather_type,
                                     run.elements, run.block, stream));
}

}  // namespace vescomm::fsdp::device
