// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/problem.h"

namespace vescomm::all_gather_v {

// bruck.cc, as far as the vector is in the slab of the node, or with its first rank. What follows
// belongs to the end of the last lane.
Schedule gather_on_nodes(const Problem &problem, int rank);
// Where it lies there.
Place gathered_on_node(const Problem &problem, int first);

}  // namespace vescomm::all_gather_v
