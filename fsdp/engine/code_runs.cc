// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "fsdp/engine/code_runs.h"

#include <algorithm>

#include "fsdp/quantise/block_quantise.h"

namespace vescomm::fsdp {

namespace {

CodeType code_type_of(vescomm_type_t type) {
    return type == VESCOMM_I8 ? CodeType::int8 : CodeType::f8e4m3;
}

}  // namespace

void quantise_run(const GatherRun &run, vescomm_type_t code_type, const void *from,
                  vescomm_type_t type, std::int64_t first, std::byte *codes, std::byte *scales) {
    const auto *elements = static_cast<const std::byte *>(from);
    const std::size_t size = vescomm_type_get_bytes(type);
    for_equal_blocks(run, [&](std::int64_t begin, std::int64_t count, std::int64_t scale) {
        quantise(code_type_of(code_type), elements + static_cast<std::size_t>(first + begin) * size,
                 type, static_cast<std::size_t>(count), static_cast<std::size_t>(run.block),
                 codes + begin, reinterpret_cast<float *>(scales) + scale);
    });
}

// Runs have offsets in the whole bucket and in the codes of all ranks.
void quantise_shard(const Bucket &bucket, int position, const void *masters, std::byte *codes) {
    const GatherCodes &all = bucket.codes;
    const int shard = bucket.shard_number(position);
    const std::int64_t begin = bucket.begin(position);
    const auto begin_bytes = static_cast<std::uint64_t>(all.cuts[shard]);
    for (std::size_t i = all.first_run[shard]; i < all.first_run[shard + 1]; ++i) {
        const GatherRun &run = all.runs[i];
        quantise_run(run, bucket.gather_type, masters, bucket.master_type, run.offset - begin,
                     codes + (run.codes - begin_bytes), codes + (run.scales - begin_bytes));
    }
}

void dequantise_run(const GatherRun &run, vescomm_type_t code_type, const std::byte *codes,
                    const std::byte *scales, void *to, vescomm_type_t type) {
    auto *elements = static_cast<std::byte *>(to);
    const std::size_t size = vescomm_type_get_bytes(type);
    for_equal_blocks(run, [&](std::int64_t begin, std::int64_t count, std::int64_t scale) {
        dequantise(code_type_of(code_type), codes + begin,
                   reinterpret_cast<const float *>(scales) + scale, static_cast<std::size_t>(count),
                   static_cast<std::size_t>(run.block),
                   elements + static_cast<std::size_t>(run.offset + begin) * size, type);
    });
}

void sum_run(const GatherRun &run, vescomm_type_t code_type, const std::byte *shards,
             std::uint64_t first_byte, std::uint64_t stride, std::span<QuantisedSource> sources,
             float factor, float *to) {
    for_equal_blocks(run, [&](std::int64_t begin, std::int64_t count, std::int64_t scale) {
        for (std::size_t rank = 0; rank < sources.size(); ++rank) {
            const std::byte *codes = shards + rank * stride;
            sources[rank] = {
                codes + (run.codes - first_byte) + begin,
                reinterpret_cast<const float *>(codes + (run.scales - first_byte)) + scale};
        }
        sum_quantised(code_type_of(code_type), sources, static_cast<std::size_t>(count),
                      static_cast<std::size_t>(run.block), factor, to + begin);
    });
}

}  // namespace vescomm::fsdp
