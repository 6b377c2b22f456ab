// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "planner/problem.h"
#include "planner/weights.h"

namespace vescomm::planner {

// Plans one buffer on its own, ragged or uniform. `items` is to_items(problem, options).
Answer plan_alone(const Problem &problem, const Items &items, const Options &options);

LayoutPointer make_layout(std::span<const Tensor> tensors, const Answer &answer);

// Computes the figures of an answer from its places, cuts and lower bound. With weights,
// lower_bound_over_share is left unchanged.
void set_figures(Answer &answer, const Items &items, const Shares &shares);

}  // namespace vescomm::planner
