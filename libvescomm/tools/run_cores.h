// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <vector>

namespace vescomm {

// Splits the cores that this process may use among ranks, neighbours staying together: a NUMA node
// or a shared cache goes to as few ranks as possible. More ranks than cores share them.
// Throws Error when hwloc cannot tell.
std::vector<cpu_set_t> split_cores(int ranks);

}  // namespace vescomm
