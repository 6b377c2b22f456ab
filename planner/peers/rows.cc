// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Layouts by rows: FSDP2 and Megatron-FSDP. Zone: set-up.
#include "planner/arithmetic.h"
#include "planner/peers/peers.h"

namespace vescomm::planner {
namespace {

struct Rows {
    std::int64_t count = 1;
    std::int64_t elements = 1;  // of one row
};

// A scalar is one row of one element.
Rows rows_of(const Tensor &tensor) {
    Rows rows;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
        std::int64_t &factor = i == 0 ? rows.count : rows.elements;
        factor = times(factor, tensor.shape[i]);
    }
    return rows;
}

std::optional<std::int64_t> countable(std::int64_t shard, int ranks) {
    if (times(shard, ranks) == unbounded) return std::nullopt;
    return shard;
}

}  // namespace

std::optional<std::int64_t> fsdp2_shard(const Problem &problem, const Options &) {
    std::int64_t shard = 0;
    for (const Tensor &tensor : problem.tensors) {
        const Rows rows = rows_of(tensor);
        shard = plus(shard, times(divide_up(rows.count, problem.ranks), rows.elements));
    }
    return countable(shard, problem.ranks);
}

std::optional<std::int64_t> lcm_grid_shard(const Problem &problem, const Options &) {
    std::int64_t grid = 1;
    std::int64_t elements = 0;
    for (const Tensor &tensor : problem.tensors) {
        const Rows rows = rows_of(tensor);
        const std::int64_t size = times(rows.count, rows.elements);
        if (size == 0) continue;
        elements = plus(elements, size);
        grid = least_common_multiple(grid, rows.elements);
    }
    if (elements == unbounded || grid == unbounded) return std::nullopt;
    return countable(round_up(divide_up(elements, problem.ranks), grid), problem.ranks);
}

}  // namespace vescomm::planner
