// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "schedule/schedule.h"
#include "topology/nodes.h"

namespace vescomm {

enum class Collective : std::uint8_t {
    all_gather_v,
    reduce_scatter_v,
    all_reduce,
    broadcast,
    barrier,
};

std::string_view name_of(Collective collective);

// The question that an algorithm answers: all that it may depend on, the same on every rank.
struct Problem {
    Collective collective = Collective::barrier;
    Nodes nodes;
    std::vector<std::int64_t> cuts;  // ranks + 1 offsets in elements; empty for a barrier
    bool per_node = false;  // the buffer is one slab for each node
    bool in_place = true;  // no source (all_gather_v), no output (reduce_scatter_v)
    int root = 0;

    int ranks() const { return nodes.ranks(); }
    std::int64_t elements() const { return cuts.empty() ? 0 : cuts.back(); }
    std::int64_t begin(int rank) const { return cuts[rank]; }
    std::int64_t size(int rank) const { return cuts[rank + 1] - cuts[rank]; }
    // The shard of `owner` as it lies in the buffer of `holder`.
    Place shard(int holder, int owner) const { return {holder, Region::buffer, begin(owner)}; }
    // Where the shard of a rank starts out (all_gather_v) and where it ends up (reduce_scatter_v).
    Place source(int rank) const {
        return in_place ? shard(rank, rank) : Place{rank, Region::source, 0};
    }
    Place output(int rank) const {
        return in_place ? shard(rank, rank) : Place{rank, Region::output, 0};
    }
};

}  // namespace vescomm
