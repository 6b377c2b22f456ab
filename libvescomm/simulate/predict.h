// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "schedule/algorithms.h"
#include "simulate/simulate.h"

namespace vescomm::internal {

// Predicted seconds of an algorithm. The algorithm must solve the problem. A pure function: ranks
// with equal arguments get equal results. Returns nullopt if this rank knows only its own part of
// an exchange, or if the algorithm does not solve a scaled-down problem.
//
// Up to 32 ranks are simulated. For more ranks, scaled-down problems are simulated and
// extrapolated. A scaled-down problem has fewer nodes, and fewer ranks per node; it keeps the order
// of ranks and their share of memory and rails. Two sizes in each direction, nodes and ranks per
// node, give a line that is followed to the size of the problem. For algorithms with a phase for
// every doubling of nodes (Growth::logarithmic), the limit is 64 ranks, and three numbers of nodes
// separate the cost of a phase from the cost of the bytes of a node. A scaled-down problem keeps
// the size of the shards, or the size of the whole vector if every rank has all of it. It keeps the
// ratio of the largest shard to the average. Stragglers are ignored.
//
// Arrays that fill the staging buffer more than four times are extrapolated from two and four
// fills.
//
// Cost: 5 to 50 us for 4 to 8 ranks. Less than a millisecond for each of up to four simulations of
// 32 ranks; some milliseconds for each of up to eight if arrays fill the staging buffer many times.
std::optional<double> predict(const AlgorithmEntry &algorithm, const AnyProblem &problem,
                              const ElementBytes &bytes, const Machine &machine);

}  // namespace vescomm::internal
