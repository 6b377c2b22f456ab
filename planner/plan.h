// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "planner/problem.h"
#include "planner/weights.h"

namespace vescomm::planner {

// One buffer, by itself, ragged or uniform. `items` is to_items() of the two others.
Answer plan_alone(const Problem &problem, const Items &items, const Options &options);

LayoutPointer make_layout(std::span<const Tensor> tensors, const Answer &answer);

// A part of a sentence.
std::string describe_padding(const Answer &answer);

// Sets what follows from the places, the cuts and the lower bound of a layout. With weights,
// lower_bound_over_share does not.
void set_figures(Answer &answer, const Items &items, const Shares &shares);

}  // namespace vescomm::planner
