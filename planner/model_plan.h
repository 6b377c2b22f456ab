// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vescomm/planner_model.hpp"

namespace vescomm::planner {

// plan() in the modes that are about models: one buffer is the only unit of one.
Answer plan_as_model(const Problem &problem, const Options &options);

}  // namespace vescomm::planner
