// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Gathers of parameters in 8 bits: blocks with one scale each, and the bytes that travel. Pure.
//
//     shard of rank 0              shard of rank 1
//     codes │ scales, f32          codes │ scales, f32          bytes of a bucket, cut by rank
//
// Blocks are counted within a parameter and stay on one rank, so the codes do not depend on the
// number of ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

struct Bucket;

// The blocks of one parameter.
struct GatherGrid {
    std::int64_t segment = 1;  // elements of a sub-matrix; blocks begin again at each
    std::int64_t factor = 1;  // blocks of the parameter that stay together on one rank
    std::int64_t kept = 1;  // elements of these
    std::int64_t block = 1;  // elements with one scale: all that stay together, or a part of them
};

// `max_block`: elements with one scale, at most.
GatherGrid gather_grid(const Parameter &parameter, std::int64_t max_block);

// False if codes with their scales take as many bytes as elements of `type`, because blocks begin
// again at each sub-matrix, and these have few elements.
bool codes_are_smaller(const Parameter &parameter, std::int64_t max_block, vescomm_type_t type);

// Consecutive elements of a shard that one rank converts at a time.
struct GatherRun {
    std::int64_t offset = 0;  // first element in the bucket
    std::int64_t elements = 0;
    std::int64_t period = 0;  // elements after which blocks begin again
    std::int64_t block = 0;  // elements with one scale
    std::uint64_t codes = 0;  // first byte in the codes of the bucket
    std::uint64_t scales = 0;  // first byte in the codes of the bucket, a multiple of 4
};

// The bytes of a quantised bucket.
struct GatherCodes {
    std::vector<std::int64_t> cuts;  // in bytes, one more than shards, multiples of 4
    std::vector<GatherRun> runs;  // shard after shard
    std::vector<std::size_t> first_run;  // by shard, and the end

    std::uint64_t bytes() const {
        return cuts.empty() ? 0 : static_cast<std::uint64_t>(cuts.back());
    }
    std::uint64_t bytes(int shard) const {
        if (cuts.empty()) return 0;
        return static_cast<std::uint64_t>(cuts[shard + 1] - cuts[shard]);
    }
};

// Returns the bytes of a bucket whose places and cuts are known.
GatherCodes gather_codes(const Spec &spec, const Bucket &bucket);

}  // namespace vescomm::fsdp
