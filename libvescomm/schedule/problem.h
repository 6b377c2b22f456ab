// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "schedule/exchange.h"
#include "schedule/extent.h"
#include "schedule/schedule.h"
#include "topology/nodes.h"

namespace vescomm::internal {

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
// True if contributions are combined.
bool reduces(Collective collective);
// True if one rank is the only source or the only target.
bool has_root(Collective collective);
// True for an operation between two ranks.
bool is_message(Collective collective);

// Memory of each rank for one operation on arrays: its slot of the staging buffer, and its partial
// sums.
struct SlotBytes {
    std::int64_t staging, partial;
};
// Within a node both are small, because a chunk that one rank writes and another reads should stay
// in their caches. Between nodes each chunk is a message, and waits for another one that permits it
// (docs/design/0042).
inline SlotBytes slot_bytes(const Nodes &nodes) {
    constexpr std::int64_t unit = 1 << 19;
    return nodes.count() > 1 ? SlotBytes{.staging = 8 * unit, .partial = 4 * unit}
                             : SlotBytes{.staging = 2 * unit, .partial = unit};
}
// Upper bound of the bytes beside their flag (common/inline.h). For more, copying the blocks that a
// receiver does not need costs more than it saves.
inline constexpr std::int64_t max_inline_bytes = 1 << 13;
// Memory of each rank for its pair areas, and the largest block beside a pair flag.
inline constexpr std::int64_t pair_areas_bytes = 1 << 16;
inline constexpr std::int64_t max_pair_bytes = 1 << 13;

// The pair areas of a staging buffer: one for each rank of the node, for the block that this rank
// sends to it in an all_to_all_v. All numbers are elements. A block of at most `beside` elements
// lies in the cache line of its flag, a larger one in the lines after it.
struct PairAreas {
    std::int64_t begin = 0;  // offset in the staging buffer
    std::int64_t stride = 0;
    std::int64_t beside = 0;
    std::int64_t count = 0;  // of the largest block; 0: there are no pair areas

    // The offset of a block for the rank of this node with local rank `local`.
    std::int64_t offset(int local, std::int64_t elements) const {
        return begin + local * stride + (elements > beside ? beside : 0);
    }
};

// The common part of all problems. A problem is everything that an algorithm may depend on. It is
// the same on every rank, except for ArrayProblem::exchange.
//
// A vector of elements is cut into one shard for each rank.
struct Problem {
    Collective collective = Collective::barrier;
    Nodes nodes;
    std::vector<std::int64_t> cuts;  // ranks + 1 offsets in elements; empty: barrier, all_to_all_v
    int root = 0;
    // Contributions are combined one after another, in the order of ranks. The bits of the result
    // then do not depend on the algorithm or on the placement of ranks on nodes.
    bool in_order = false;

    int ranks() const { return nodes.ranks(); }
    std::int64_t elements() const { return cuts.empty() ? 0 : cuts.back(); }
    std::int64_t begin(int rank) const { return cuts[rank]; }
    std::int64_t size(int rank) const { return cuts[rank + 1] - cuts[rank]; }
};

// A collective on a fused buffer, in which the vector lies; or a barrier, which has no elements.
struct BufferProblem : Problem {
    bool per_node = false;  // one slab for each node; false: one for each rank
    bool in_place = true;  // no source (all_gather_v), no output (reduce_scatter_v)
    // Contributions in the buffer have the type of partial sums and need no scaling, so a rank may
    // put its contribution in place of a partial sum.
    bool contributions_are_sums = false;

    BufferProblem() = default;
    explicit BufferProblem(Problem common) : Problem(std::move(common)) {}

    // The shard of `owner` in the buffer of `holder`.
    Place shard(int holder, int owner) const { return {holder, Region::buffer, begin(owner)}; }
    // The shard of a rank before an all_gather_v, and after a reduce_scatter_v.
    Place source(int rank) const {
        return in_place ? shard(rank, rank) : Place{rank, Region::source, 0};
    }
    Place output(int rank) const {
        return in_place ? shard(rank, rank) : Place{rank, Region::output, 0};
    }
    // Elements of the source and output arrays of a rank.
    std::int64_t source_size(int rank) const { return cuts.empty() ? 0 : size(rank); }
    std::int64_t output_size(int rank) const { return cuts.empty() ? 0 : size(rank); }
};

// A collective on arrays of the callers. Data between arrays passes through the staging buffer,
// which is small.
struct ArrayProblem : Problem {
    Exchange exchange;  // all_to_all_v: the counts of each pair of ranks
    // A phase of an all_reduce: the results of reduce_scatter_v, and the sources of all_gather_v,
    // lie in the output array at their offset in the vector.
    bool is_phase = false;
    // all_to_all_v: every flag is for one rank, also within a node.
    bool pairwise_flags = false;
    // The parts of its staging buffer and of its partial sums that each rank may use.
    Extent staging;
    Extent partial;
    // Elements that fit behind inline_flag. Up to inlined.begin of them lie in the cache line of
    // the flag, from offset 0 on; up to inlined.count of them from inlined.begin on.
    Extent inlined;
    PairAreas pairs;  // all_to_all_v

    ArrayProblem() = default;
    explicit ArrayProblem(Problem common) : Problem(std::move(common)) {}

    // The shard of a rank before an all_gather_v, and after a reduce_scatter_v.
    Place source(int rank) const {
        return is_phase ? Place{rank, Region::output, begin(rank)} : Place{rank, Region::source, 0};
    }
    Place output(int rank) const { return {rank, Region::output, is_phase ? begin(rank) : 0}; }
    // For a collective that combines nothing, the block from `from` to `to`: its elements, its
    // place at the sender, and its place at the receiver. A block for all ranks has one place at
    // the sender.
    std::int64_t block(int from, int to) const;
    Place given(int from, int to) const;
    Place taken(int from, int to) const;
    // Elements of the source and output arrays of a rank.
    std::int64_t source_size(int rank) const;
    std::int64_t output_size(int rank) const;
};

// A problem of either kind. `->` gives the common part.
class AnyProblem {
public:
    AnyProblem(BufferProblem problem) : problem_(std::move(problem)) {}
    AnyProblem(ArrayProblem problem) : problem_(std::move(problem)) {}

    // nullptr: a problem of the other kind.
    const BufferProblem *buffers() const { return std::get_if<BufferProblem>(&problem_); }
    BufferProblem *buffers() { return std::get_if<BufferProblem>(&problem_); }
    const ArrayProblem *arrays() const { return std::get_if<ArrayProblem>(&problem_); }
    ArrayProblem *arrays() { return std::get_if<ArrayProblem>(&problem_); }

    const Problem &operator*() const { return *operator->(); }
    const Problem *operator->() const {
        return std::visit([](const Problem &problem) { return &problem; }, problem_);
    }
    Problem *operator->() {
        return std::visit([](Problem &problem) { return &problem; }, problem_);
    }

private:
    std::variant<BufferProblem, ArrayProblem> problem_;
};

// True if a collective on a buffer of `bytes` bytes may also pass through the staging buffer, as
// a collective on arrays. `forced`: an algorithm was asked for. One copy more, but one wait instead
// of two or three, because no rank has to learn that its bytes were read: for many bytes the copy
// costs more than the waits, and predictions take long. Between nodes, only arrays can be combined
// in the order of ranks, or reduced to a root.
bool has_staged_variant(const BufferProblem &problem, std::int64_t bytes, bool forced);

// Sets `cuts` to equal shards. Shards are whole cache lines if each has at least 64 elements.
void cut_evenly(std::int64_t elements, int ranks, std::vector<std::int64_t> &cuts);

}  // namespace vescomm::internal
