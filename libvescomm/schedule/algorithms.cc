// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/algorithms.h"

namespace vescomm {

std::string_view name_of(Collective collective) {
    switch (collective) {
        case Collective::all_gather_v:
            return "all_gather_v";
        case Collective::reduce_scatter_v:
            return "reduce_scatter_v";
        case Collective::all_reduce:
            return "all_reduce";
        case Collective::broadcast:
            return "broadcast";
        case Collective::barrier:
            return "barrier";
    }
    return "unknown collective";
}

namespace {

bool per_node(const Problem &problem) {
    return problem.per_node;
}

bool per_rank(const Problem &problem) {
    return !problem.per_node;
}

bool always(const Problem &) {
    return true;
}

// THE table. To add an algorithm: write its file, declare it in algorithms.h, add a row here;
// docs/adding-an-algorithm.md goes through one.
constexpr AlgorithmEntry table[] = {
    {Collective::all_gather_v, "slab", all_gather_v::slab, per_node,
     "one slab for each node: every rank writes its shard once, and puts it once into each other "
     "node"},
    {Collective::all_gather_v, "direct", all_gather_v::direct, per_rank,
     "every rank copies the others' shards straight out of their buffers"},
    {Collective::all_gather_v, "ring", all_gather_v::ring, per_rank,
     "every rank passes its left neighbour's shards on to its right one, ranks - 1 rounds"},
    {Collective::reduce_scatter_v, "direct", reduce_scatter_v::direct, per_rank,
     "every rank sums its shard straight out of everyone's buffer; nodes exchange partial sums"},
    {Collective::all_reduce, "two_phase", all_reduce::two_phase, per_rank,
     "a reduce_scatter_v, then an all_gather_v, both in place"},
    {Collective::broadcast, "tree", broadcast::tree, always,
     "a binomial tree over nodes; within a node everyone copies from the first holder"},
    {Collective::barrier, "dissemination", barrier::dissemination, always,
     "one signal within a node, ceil(log2(nodes)) rounds between nodes"},
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

}  // namespace vescomm
