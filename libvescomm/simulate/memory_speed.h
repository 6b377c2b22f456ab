// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/problem.h"
#include "topology/machine.h"

namespace vescomm::internal {

// Size in bytes of an element and of a partial sum.
struct ElementBytes {
    int element = 4;
    int partial = 4;
};

// Memory speed for a problem. It depends on how much of the working set of a host fits its cache.
MemorySpeed speed_for(const AnyProblem &problem, const ElementBytes &bytes, const Machine &machine);

}  // namespace vescomm::internal
