// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Decides how the shards of an old plan become those of a new one, after ranks have failed. Pure.
//
//     old ranks    0   1   2   3        rank 2 has failed
//     new ranks    0   1       2        the holder of its copy sends the elements of rank 2
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fsdp/spec/model_plan.h"

namespace vescomm::fsdp {

// The values that a survivor has. Only whole numbers of 64 bits, which one all_gather moves.
struct Holding {
    std::int64_t rank = 0;  // in the old communicator
    std::int64_t generation = 0;  // changes of the parameters so far
    std::int64_t complete = 0;  // 1: shards are valid; initialise, load and step have ended
    std::int64_t copied_rank = -1;  // old rank whose copy it has; -1: none
    std::uint64_t folder = 0;  // hash of the name of the folder of checkpoints; 0: none
};

// The survivors, by new rank, and the shards that they have.
class Survivors {
public:
    Survivors(const Mesh &old_mesh, std::vector<Holding> holdings);

    // Returns a sentence if they have passed different folders of checkpoints, else "".
    std::string different_folders() const;
    // Returns a sentence if the survivors do not have the shards of one and the same step, else "".
    std::string missing() const;
    // Returns the new rank that gives the values at a position of the old plan to a new rank: that
    // rank if it has them, else the first one that has them as its shard, else as a copy. -1: none.
    int provider(int position, int receiver) const;
    // True if the provider has the position as its own shard, not as a copy.
    bool own(int provider, int position) const;
    // The position of a survivor in the old plan.
    int position(int rank) const {
        return mesh_.position(static_cast<int>(holdings_[static_cast<std::size_t>(rank)].rank));
    }
    // The largest one of the survivors.
    std::int64_t generation() const;

private:
    std::string failed_ranks() const;
    // The old ranks that had a shard.
    std::string ranks_at(int position) const;

    const Mesh mesh_;
    std::vector<Holding> holdings_;
};

// Elements of a parameter that one rank gives to another one, or to itself.
struct Segment {
    std::size_t parameter = 0;
    std::int64_t first = 0;  // element of the parameter
    std::int64_t elements = 0;
    int position = 0;  // in the old plan
    int from = 0;  // new rank
    int to = 0;  // new rank
};

// Returns the segments of the parameters of a unit that make up the new shards, in an order that is
// the same on all ranks. No position may be missing.
std::vector<Segment> segments_of(const ModelPlan &from, const ModelPlan &to, std::size_t unit,
                                 const Survivors &survivors);

// Throws Failure unless both specifications have the same parameters with the same states.
void require_same_values(const Spec &before, const Spec &after);

}  // namespace vescomm::fsdp
