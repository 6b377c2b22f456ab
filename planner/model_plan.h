// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vescomm/planner_model.hpp"

namespace vescomm::planner {

// plan() of one buffer in the modes that concern models: the buffer becomes the only unit of a
// model.
Answer plan_as_model(const Problem &problem, const Options &options);

}  // namespace vescomm::planner
