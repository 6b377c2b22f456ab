// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Chooses the ranks that hold copies of shards. Pure.
#pragma once

#include <span>

#include "fsdp/spec/mesh.h"
#include "fsdp/spec/spec.h"

namespace vescomm::fsdp {

// True if each rank holds a copy of another rank's shards. Replicas have the same values anyway.
bool has_partner_copies(const Spec &spec, const Mesh &mesh);

// Returns the distance d such that rank (r + d) mod ranks holds the copy of rank r. It is the
// smallest distance at which the most ranks have their copy on another node. `node_of` has the node
// of each rank, of at least two ranks.
int partner_distance(std::span<const int> node_of);

}  // namespace vescomm::fsdp
