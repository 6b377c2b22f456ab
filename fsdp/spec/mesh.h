// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The mesh of ranks: groups of consecutive ranks that shard the model, and replicas of the groups.
#pragma once

#include <string>
#include <vector>

#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

// Units that all ranks of a shard group share, and units of which each rank has its own experts.
enum class UnitKind { dense, experts };

struct Mesh {
    int ranks = 1;
    int shard_ranks = 1;  // consecutive ranks among which a unit is sharded
    // Consecutive ranks that hold a secondary copy of all gathered parameters together, a divisor
    // of shard_ranks. 0: there is none.
    int secondary_ranks = 0;
    // Ranks among which experts are divided, a divisor of shard_ranks. 1: units of experts are
    // dense. Those of a shard group with the same expert_index() shard the same experts:
    //
    //     rank                    0  1  2  3  4  5
    //     experts, expert_ranks 2 a  b  a  b  a  b
    int expert_ranks = 1;
    bool keep_parameters = false;  // gathered units stay gathered until the step
    bool keep_gradients = false;  // whole gradients of all units stay on a rank until they are sent

    int replicas() const { return ranks / shard_ranks; }
    int position(int rank) const { return rank % shard_ranks; }
    int group(int rank) const { return rank / shard_ranks; }
    int expert_index(int rank) const { return rank % expert_ranks; }
    // Ranks that shard a unit.
    int shard_ranks_of(UnitKind kind) const {
        return kind == UnitKind::experts ? shard_ranks / expert_ranks : shard_ranks;
    }

    // Consecutive ranks that gather a unit together. Each contributes one part: the shards of
    // part_positions() consecutive positions.
    int gather_ranks() const { return secondary_ranks > 0 ? secondary_ranks : shard_ranks; }
    int gather_ranks_of(UnitKind kind) const {
        return kind == UnitKind::experts ? shard_ranks_of(kind) : gather_ranks();
    }
    int part_positions() const { return shard_ranks / gather_ranks(); }
    // The number of the part that the rank at a position contributes.
    int part(int position, UnitKind kind = UnitKind::dense) const {
        return kind == UnitKind::experts ? position / expert_ranks : position % gather_ranks();
    }
    // The rank that contributes a part to the gathers of a rank.
    int rank_of_part(int rank, int part, UnitKind kind) const {
        const int count = gather_ranks();
        return kind == UnitKind::experts
                   ? group(rank) * shard_ranks + expert_index(rank) + part * expert_ranks
                   : rank / count * count + part;
    }
    // True if the part of the rank at `position` has the shard of position `shard`.
    bool part_has(int position, int shard) const {
        return shard / part_positions() == part(position);
    }
};

// Throws Failure if the placements are not supported.
void check_axes(const std::vector<Axis> &axes);

// Returns the axes of a preset. Throws Failure for an unknown one.
std::vector<Axis> axes_of_preset(const std::string &preset);

// Far above the size of any job. Plans have arrays with an element for each rank.
constexpr int max_ranks = 1 << 20;
// Throws Failure below 1 and above max_ranks.
void require_ranks(int ranks);

// Throws Failure if the axes do not divide the ranks.
Mesh make_mesh(const Spec &spec, int ranks);

}  // namespace vescomm::fsdp
