// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The mesh of ranks: groups of consecutive ranks that shard the model, and replicas of the groups.
#pragma once

#include <string>
#include <vector>

#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

struct Mesh {
    int ranks = 1;
    int shard_ranks = 1;  // consecutive ranks among which a unit is sharded
    bool keep_parameters = false;  // gathered units stay gathered until the step
    bool keep_gradients = false;  // whole gradients of all units stay on a rank until they are sent

    int replicas() const { return ranks / shard_ranks; }
    int position(int rank) const { return rank % shard_ranks; }
    int group(int rank) const { return rank / shard_ranks; }
};

// Throws Failure if the placements are not supported.
void check_axes(const std::vector<Axis> &axes);

// Returns the axes of a preset. Throws Failure for an unknown one.
std::vector<Axis> axes_of_preset(const std::string &preset);

// Throws Failure if the axes do not divide the ranks.
Mesh make_mesh(const Spec &spec, int ranks);

}  // namespace vescomm::fsdp
