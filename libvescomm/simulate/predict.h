// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "schedule/algorithms.h"
#include "simulate/simulate.h"

namespace vescomm {

// Predicted seconds of an algorithm, which suits the problem. A pure function: ranks that agree
// about its arguments agree about its result. Nothing when this rank knows only its own part of an
// exchange.
//
// Up to 32 ranks are simulated. Of more, parts are: fewer nodes, and fewer ranks of each, that keep
// the order of ranks and their share of memory and rails. Two of them in each direction give a
// line, which is followed to the size that was asked for, in nodes and in ranks of a node. Where
// every doubling of nodes is a round (Growth), it is up to 64 ranks, and three numbers of nodes
// tell what a round costs and what the bytes of a node do. In a part the shares of ranks stay what
// they are, or the whole where everyone has the whole; the largest share stays as it is to the
// average. Stragglers are left out.
//
// Likewise an array of more than four stages is taken for two and for four of them.
//
// Cost: 5 to 50 us for 4 to 8 ranks; less than a millisecond for each of up to four simulations of
// 32, and some for each of up to eight where arrays pass through the staging buffer in many rounds.
std::optional<double> predict(const AlgorithmEntry &algorithm, const Problem &problem,
                              const ElementBytes &bytes, const Machine &machine);

}  // namespace vescomm
