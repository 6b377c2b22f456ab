// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <vector>

namespace vescomm::internal {

// Splits the cores that this process may use among ranks. Cores of one NUMA node or shared cache go
// to as few ranks as possible. If there are more ranks than cores, ranks share cores. Throws Error
// if hwloc cannot read the topology.
std::vector<cpu_set_t> split_cores(int ranks);

}  // namespace vescomm::internal
