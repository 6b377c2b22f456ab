// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Conversions of runs, see fsdp/spec/gather_codes.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fsdp/quantise/quantise_loops.h"
#include "fsdp/spec/gather_codes.h"
#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

// Calls body(first element, elements, first scale) for parts of a run whose blocks are equal, but
// for the last.
template <typename Body>
void for_equal_blocks(const GatherRun &run, Body &&body) {
    if (run.period % run.block == 0 || run.elements <= run.period) {
        body(0, run.elements, 0);
        return;
    }
    const std::int64_t scales = (run.period + run.block - 1) / run.block;
    for (std::int64_t first = 0, period = 0; first < run.elements; first += run.period, ++period)
        body(first, std::min(run.period, run.elements - first), period * scales);
}

// Quantises the elements of a run, which begin at element `first` of `from`.
void quantise_run(const GatherRun &run, vescomm_type_t code_type, const void *from,
                  vescomm_type_t type, std::int64_t first, std::byte *codes, std::byte *scales);

// Quantises the shard of a position, whose masters are given. `codes`: receives its codes and
// scales.
void quantise_shard(const Bucket &bucket, int position, const void *masters, std::byte *codes);

// Writes the elements of a run to `to`, an array of the bucket.
void dequantise_run(const GatherRun &run, vescomm_type_t code_type, const std::byte *codes,
                    const std::byte *scales, void *to, vescomm_type_t type);

// Sums the elements of a run. Byte `first_byte` of the codes of the bucket of rank r is at
// shards + r * stride. `sources` has an entry for each rank, to be overwritten.
void sum_run(const GatherRun &run, vescomm_type_t code_type, const std::byte *shards,
             std::uint64_t first_byte, std::uint64_t stride, std::span<QuantisedSource> sources,
             float factor, float *to);

}  // namespace vescomm::fsdp
