// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"

#include "schedule/common/gathered.h"
#include "schedule/common/inline.h"
#include "schedule/common/staged.h"

namespace vescomm::internal {

namespace {

bool per_node(const BufferProblem &problem) {
    return problem.per_node;
}

bool per_rank(const BufferProblem &problem) {
    return !problem.per_node;
}

bool per_rank_on_one_node(const BufferProblem &problem) {
    return per_rank(problem) && problem.nodes.count() == 1;
}

bool per_rank_on_nodes(const BufferProblem &problem) {
    return per_rank(problem) && problem.nodes.count() > 1;
}

// Maximum elements for which every rank sums the whole vector for itself.
constexpr std::int64_t max_for_flat = 16 * 1024;

bool few_on_one_node(const ArrayProblem &problem) {
    return problem.nodes.count() == 1 &&
           (problem.ranks() == 2 || problem.elements() <= max_for_flat) &&
           problem.staging.count >= 2;
}

bool reducible(const AnyProblem &problem) {
    if (const ArrayProblem *arrays = problem.arrays())
        return reduce_scatter_v::can_use_staging(*arrays);
    return !problem.buffers()->per_node && problem.buffers()->in_place;
}

bool always(const AnyProblem &) {
    return true;
}

constexpr std::string_view staged_blocks =
    "blocks pass through the staging buffer, chunk by chunk, straight from each sender to each "
    "receiver";

constexpr std::string_view inline_blocks =
    "all blocks pass through the staging buffer at once, each rank's data beside its flag";

constexpr std::string_view forwarded_blocks =
    "a rank sends its blocks for all ranks of another node as one message";

constexpr std::string_view gathered_sums =
    "every rank gets all contributions and sums its result, log2(nodes) phases";

// THE table. To add an algorithm: write its file, declare it in algorithms.h, and add a row here.
// docs/adding-an-algorithm.md shows an example.
constexpr AlgorithmEntry table[] = {
    {Collective::all_gather_v, "slab", "all_gather_v/slab.cc", all_gather_v::slab, per_node,
     "one slab for each node: every rank writes its shard once, and puts it once into each other "
     "node"},
    {Collective::all_gather_v, "direct", "all_gather_v/direct.cc", all_gather_v::direct, per_rank,
     "every rank copies its shard straight into all other buffers"},
    {Collective::all_gather_v, "ring", "all_gather_v/ring.cc", all_gather_v::ring,
     per_rank_on_nodes, "every rank passes on what comes from its left neighbour, chunk by chunk"},
    {Collective::reduce_scatter_v, "direct", "reduce_scatter_v/direct.cc", reduce_scatter_v::direct,
     per_rank, "every rank sums its shard straight out of all buffers; nodes exchange partial sums",
     Growth::linear, false, false, reduce_scatter_v::max_partial_of_direct},
    {Collective::reduce_scatter_v, "ring", "reduce_scatter_v/ring.cc", reduce_scatter_v::ring,
     per_rank_on_nodes,
     "every node adds to the sums of its left neighbour, and passes them on, chunk by chunk",
     Growth::linear, false, false, reduce_scatter_v::max_partial_of_ring},
    {Collective::reduce_scatter_v, "balanced", "reduce_scatter_v/balanced.cc",
     reduce_scatter_v::balanced, per_rank_on_one_node,
     "the ranks sum equal parts of the vector, independent of the owners", Growth::linear, false,
     false, reduce_scatter_v::max_partial_of_balanced},
    {Collective::all_gather_v, "inline", "common/inline.cc", common::inlined, common::can_be_inline,
     inline_blocks},
    {Collective::all_gather_v, "staged", "common/staged.cc", common::pass_blocks,
     common::can_pass_blocks, staged_blocks},
    {Collective::all_gather_v, "bruck", "all_gather_v/bruck.cc", all_gather_v::bruck,
     all_gather_v::can_bruck,
     "each message carries the shards of 1, 2, 4, ... nodes, log2(nodes) phases",
     Growth::logarithmic},
    {Collective::reduce_scatter_v, "inline", "common/inline.cc", common::inlined,
     common::can_be_inline, inline_blocks},
    {Collective::reduce_scatter_v, "staged", "reduce_scatter_v/staged.cc", reduce_scatter_v::staged,
     reduce_scatter_v::can_use_staging,
     "contributions pass through the staging buffer, and every rank sums its shard straight out of "
     "it"},
    {Collective::reduce_scatter_v, "bruck", "reduce_scatter_v/bruck.cc", reduce_scatter_v::bruck,
     reduce_scatter_v::can_bruck,
     "each message carries the sums for ..., 4, 2, 1 nodes, log2(nodes) phases",
     Growth::logarithmic, false, false, reduce_scatter_v::max_partial_of_bruck},
    {Collective::reduce_scatter_v, "gathered", "common/gathered.cc", common::gathered,
     common::can_be_gathered, gathered_sums, Growth::logarithmic, false, true},
    {Collective::reduce_scatter_v, "chain", "reduce_scatter_v/chain.cc", reduce_scatter_v::chain,
     reduce_scatter_v::can_chain, "running sums pass from node to node in the order of ranks",
     Growth::linear, false, true},
    {Collective::all_reduce, "inline", "common/inline.cc", common::inlined, common::can_be_inline,
     inline_blocks},
    {Collective::all_reduce, "flat", "all_reduce/flat.cc", all_reduce::flat, few_on_one_node,
     "every rank sums the whole vector for itself"},
    {Collective::all_reduce, "direct", "all_reduce/direct.cc", all_reduce::direct,
     per_rank_on_one_node,
     "every rank sums its share straight out of all buffers and writes it to all", Growth::linear,
     true},
    {Collective::all_reduce, "two_phase", "all_reduce/two_phase.cc", all_reduce::two_phase,
     all_reduce::can_two_phase, "a reduce_scatter_v, then an all_gather_v, both in place",
     Growth::linear, true},
    {Collective::all_reduce, "doubling", "all_reduce/doubling.cc", all_reduce::doubling,
     all_reduce::can_double,
     "nodes exchange sums of 1, 2, 4, ... nodes, about log2(nodes) phases of the whole vector",
     Growth::logarithmic},
    {Collective::all_reduce, "bruck", "all_reduce/bruck.cc", all_reduce::bruck,
     all_reduce::can_bruck,
     "each message carries the sums for many nodes, then their shards, 2 log2(nodes) phases",
     Growth::logarithmic, true},
    {Collective::all_reduce, "gathered", "common/gathered.cc", common::gathered,
     common::can_be_gathered, gathered_sums, Growth::logarithmic, false, true},
    {Collective::all_reduce, "chain", "all_reduce/chain.cc", all_reduce::chain,
     all_reduce::can_chain,
     "running sums pass from node to node in the order of ranks, then an all_gather_v",
     Growth::linear, true, true},
    {Collective::reduce, "inline", "common/inline.cc", common::inlined, common::can_be_inline,
     inline_blocks},
    {Collective::reduce, "at_root", "reduce/at_root.cc", reduce::at_root, reducible,
     "the root sums the whole vector, as one shard of a reduce_scatter_v"},
    {Collective::reduce, "gathered", "common/gathered.cc", common::gathered,
     common::can_be_gathered, gathered_sums, Growth::logarithmic, false, true},
    {Collective::reduce, "chain", "reduce/chain.cc", reduce::chain, reduce::can_chain,
     "running sums pass from node to node in the order of ranks, and then to the root",
     Growth::linear, false, true},
    {Collective::gather_v, "inline", "common/inline.cc", common::inlined, common::can_be_inline,
     inline_blocks},
    {Collective::gather_v, "staged", "common/staged.cc", common::pass_blocks,
     common::can_pass_blocks, staged_blocks},
    {Collective::gather_v, "two_level", "gather_v/two_level.cc", gather_v::two_level,
     gather_v::can_two_level,
     "each other node sends the blocks of its ranks to the root as one message"},
    {Collective::scatter_v, "inline", "common/inline.cc", common::inlined, common::can_be_inline,
     inline_blocks},
    {Collective::scatter_v, "staged", "common/staged.cc", common::pass_blocks,
     common::can_pass_blocks, staged_blocks},
    {Collective::scatter_v, "two_level", "common/two_level.cc", common::two_level,
     common::can_two_level, forwarded_blocks},
    {Collective::all_to_all_v, "two_level", "common/two_level.cc", common::two_level,
     common::can_two_level, forwarded_blocks},
    {Collective::all_to_all_v, "staged", "common/staged.cc", common::pass_blocks,
     common::can_pass_blocks, staged_blocks},
    {Collective::broadcast, "inline", "common/inline.cc", common::inlined, common::can_be_inline,
     inline_blocks},
    {Collective::broadcast, "staged", "common/staged.cc", common::pass_blocks,
     common::can_pass_blocks, staged_blocks},
    {Collective::broadcast, "direct", "broadcast/direct.cc", broadcast::direct,
     per_rank_on_one_node,
     "every rank copies a slice of the root's buffer straight into all others", Growth::linear,
     true},
    {Collective::broadcast, "tree", "broadcast/tree.cc", broadcast::tree, always,
     "a binomial tree over nodes; within a node every rank copies from its holder",
     Growth::logarithmic},
    {Collective::broadcast, "pipeline", "broadcast/pipeline.cc", broadcast::pipeline,
     broadcast::can_pipeline,
     "a binary tree over nodes for each rank of a node, through which the vector passes in chunks",
     Growth::logarithmic},
    {Collective::barrier, "dissemination", "barrier/dissemination.cc", barrier::dissemination,
     always, "one signal within a node, ceil(log2(nodes)) phases between nodes",
     Growth::logarithmic},
};

}  // namespace

std::span<const AlgorithmEntry> algorithms() {
    return table;
}

const AlgorithmEntry *find_algorithm(Collective collective, std::string_view name) {
    for (const AlgorithmEntry &entry : table)
        if (entry.collective == collective && entry.name == name) return &entry;
    return nullptr;
}

}  // namespace vescomm::internal
