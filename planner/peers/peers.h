// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// What the layouts of other systems cost on the same tensors. All of them use equal shards, so one
// number tells everything: the elements that every rank holds, padding included.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "vescomm/planner.hpp"

namespace vescomm::planner {

struct Peer {
    std::string_view name;  // "fsdp2"
    std::string_view title;  // for people
    // Whether blocks stay on one rank, or only rows.
    bool keeps_blocks;
    // Elements of every shard, for one buffer; nothing when no equal shard can be counted.
    std::optional<std::int64_t> (*shard)(const Problem &problem, const Options &options);
};

std::span<const Peer> peers();

// Rows of each tensor are dealt out on their own: every rank has room for as many as the first,
// ceil(rows / ranks).
//
// Source: PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_param.py, Shard(0) of each parameter.
std::optional<std::int64_t> fsdp2_shard(const Problem &problem, const Options &options);

// One buffer of whole rows, cut on a common grid: shards are multiples of the least common multiple
// of all row sizes (of all dimensions but the first), so that no cut divides a row.
//
// Source: Megatron-LM, megatron/core/distributed/fsdp/src/megatron_fsdp, chunk_size_factor.
std::optional<std::int64_t> lcm_grid_shard(const Problem &problem, const Options &options);

// One buffer, tensors in the given order; a shard is the smallest found among the multiples of the
// least common multiple of the alignment and of the blocks of the 0, 1, 2, ... largest tensors,
// each by a binary search. Feasibility is decided exactly there and here, by a dynamic program
// there and by place() here.
//
// Source: veScale-FSDP, arXiv 2602.22437, the planning algorithm.
std::optional<std::int64_t> vescale_shard(const Problem &problem, const Options &options);

// The same, with fine blocks first in the buffer.
std::optional<std::int64_t> vescale_ascending_shard(const Problem &problem, const Options &options);

}  // namespace vescomm::planner
