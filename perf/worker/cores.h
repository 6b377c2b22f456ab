// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vescomm::perf {

// Cores that this thread may use.
int usable_cores();

bool more_ranks_than_cores(int ranks);

// Keeps this thread on a core that no other rank of the machine takes, if there are enough cores;
// otherwise does nothing. Threads that exist already stay where they are.
void take_own_core(int rank, int ranks);

}  // namespace vescomm::perf
