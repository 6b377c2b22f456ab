// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/problem.h"

namespace vescomm::internal::all_gather_v {

// The first part of bruck.cc: gathers the vector in the slab of each node, or at its first rank.
// The caller appends further steps to the last lane.
Schedule gather_on_nodes(const AnyProblem &problem, int rank);
// Place of the vector after gather_on_nodes(). `first` is the first rank of the node.
Place gathered_on_node(const AnyProblem &problem, int first);

}  // namespace vescomm::internal::all_gather_v
