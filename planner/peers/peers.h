// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Layouts of other systems for the same tensors. All of them use equal shards, so one number
// describes a layout: the elements that every rank holds, padding included.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "vescomm/planner.hpp"

namespace vescomm::planner {

struct Peer {
    std::string_view name;  // "fsdp2"
    std::string_view title;  // for tables
    // True: blocks stay on one rank. False: only rows do.
    bool keeps_blocks;
    // Returns the elements of every shard of one buffer; nothing when they exceed 64 bits.
    std::optional<std::int64_t> (*shard)(const Problem &problem, const Options &options);
};

std::span<const Peer> peers();

// The rows of each tensor are distributed separately. Every rank has space for the rows of the
// first rank, ceil(rows / ranks).
//
// Source: PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_param.py, Shard(0) of each parameter.
std::optional<std::int64_t> fsdp2_shard(const Problem &problem, const Options &options);

// One buffer of whole rows, cut on a common grid: shards are multiples of the least common multiple
// of all row sizes (all dimensions except the first), so that no cut divides a row.
//
// Source: Megatron-LM, megatron/core/distributed/fsdp/src/megatron_fsdp, chunk_size_factor.
std::optional<std::int64_t> lcm_grid_shard(const Problem &problem, const Options &options);

// One buffer, tensors in the given order. Candidates for a shard are the multiples of the least
// common multiple of the alignment and of the blocks of the 0, 1, 2, ... largest tensors. A binary
// search over each of these sequences finds the smallest shard. Feasibility is exact in both
// implementations: veScale-FSDP uses a dynamic program, this port uses place().
//
// Source: veScale-FSDP, arXiv 2602.22437, the planning algorithm.
std::optional<std::int64_t> vescale_shard(const Problem &problem, const Options &options);

// vescale_shard() with fine blocks first in the buffer.
std::optional<std::int64_t> vescale_ascending_shard(const Problem &problem, const Options &options);

}  // namespace vescomm::planner
