// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vescomm::perf {

// Returns the number of cores that this thread may use.
int usable_cores();

bool more_ranks_than_cores(int ranks);

// Binds this thread to a core that no other rank of the machine uses, if there are enough cores;
// otherwise does nothing. Existing threads keep their affinity.
void take_own_core(int rank, int ranks);

}  // namespace vescomm::perf
