// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/worker/cores.h"

#include <sched.h>

namespace vescomm::perf {

int usable_cores() {
    cpu_set_t cores;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

bool more_ranks_than_cores(int ranks) {
    return ranks > usable_cores();
}

void take_own_core(int rank, int ranks) {
    cpu_set_t cores;
    if (more_ranks_than_cores(ranks) || sched_getaffinity(0, sizeof cores, &cores) != 0) return;
    int number = -1;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (!CPU_ISSET(core, &cores) || ++number != rank) continue;
        cpu_set_t own;
        CPU_ZERO(&own);
        CPU_SET(core, &own);
        // Errors are ignored: without binding the figures are only slower.
        sched_setaffinity(0, sizeof own, &own);
        return;
    }
}

}  // namespace vescomm::perf
