// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "schedule/exchange.h"
#include "schedule/extent.h"
#include "schedule/schedule.h"
#include "topology/nodes.h"

namespace vescomm {

enum class Collective : std::uint8_t {
    all_gather_v,
    reduce_scatter_v,
    all_reduce,
    broadcast,
    barrier,
    reduce,
    gather_v,
    scatter_v,
    all_to_all_v,
    send,
    receive,
};

std::string_view name_of(Collective collective);
// Whether contributions are combined.
bool reduces(Collective collective);
// Whether one rank is the source or the target of all.
bool has_root(Collective collective);
// Whether it is between two ranks.
bool is_message(Collective collective);

// What every operation on arrays has of each rank's memory. Chunks of the staging buffer, written
// by one rank and read by another, should stay in their caches; the partial sums take one for each
// chunk.
inline constexpr std::int64_t staging_bytes = 1 << 20;
inline constexpr std::int64_t partial_bytes = 1 << 19;
// More than this is not worth a copy of what the receiver does not need.
inline constexpr std::int64_t max_inline_bytes = 1 << 13;

// The question that an algorithm answers: all that it may depend on, the same on every rank.
//
// A vector of elements is cut into one shard for each rank. It lies in a fused buffer, or in arrays
// of the callers; then what passes between ranks goes through the staging buffer, of which there is
// a little.
struct Problem {
    Collective collective = Collective::barrier;
    Nodes nodes;
    std::vector<std::int64_t> cuts;  // ranks + 1 offsets in elements; none: barrier, all_to_all_v
    bool arrays = false;
    int root = 0;
    // Contributions are combined one after another, in the order of ranks: what comes out does not
    // depend on the algorithm or on which ranks share nodes, to the last bit.
    bool in_order = false;

    // Of a buffer.
    bool per_node = false;  // it is one slab for each node
    bool in_place = true;  // no source (all_gather_v), no output (reduce_scatter_v)
    // A contribution as it lies there is a partial sum: of the type of one, and not multiplied.
    bool plain_sums = false;

    // Of arrays.
    Exchange exchange;  // all_to_all_v
    // Results of reduce_scatter_v, and sources of all_gather_v, lie in the output array at their
    // place in the vector: halves of an all_reduce.
    bool half = false;
    // all_to_all_v: flags are for one rank, also within a node.
    bool messages = false;
    Extent staging;  // what each rank may use
    Extent partial;
    std::int64_t inlined =
        0;  // elements from the very start of the staging buffer that may follow inline_flag

    int ranks() const { return nodes.ranks(); }
    std::int64_t elements() const { return cuts.empty() ? 0 : cuts.back(); }
    std::int64_t begin(int rank) const { return cuts[rank]; }
    std::int64_t size(int rank) const { return cuts[rank + 1] - cuts[rank]; }
    // The shard of `owner` as it lies in the buffer of `holder`.
    Place shard(int holder, int owner) const { return {holder, Region::buffer, begin(owner)}; }
    // Where the shard of a rank starts out (all_gather_v) and where it ends up (reduce_scatter_v).
    Place source(int rank) const {
        if (half) return {rank, Region::output, begin(rank)};
        return in_place && !arrays ? shard(rank, rank) : Place{rank, Region::source, 0};
    }
    Place output(int rank) const {
        if (half) return {rank, Region::output, begin(rank)};
        return in_place && !arrays ? shard(rank, rank) : Place{rank, Region::output, 0};
    }

    // Of arrays, where nothing is combined: what `from` has for `to`, where it has it, and where it
    // goes. A block that is the same for all lies in one place.
    std::int64_t block(int from, int to) const;
    Place given(int from, int to) const;
    Place taken(int from, int to) const;
    // Elements of the arrays of a rank.
    std::int64_t source_size(int rank) const;
    std::int64_t output_size(int rank) const;
};

// Equal shards, on whole cache lines when there is more than a few elements. Replaces `cuts`.
void cut_evenly(std::int64_t elements, int ranks, std::vector<std::int64_t> &cuts);

}  // namespace vescomm
