// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "topology/machine_file.h"

namespace vescomm::internal {

// Measured times of small schedules, in seconds. A time of 0 or less is not valid.
struct MeasuredTimes {
    // Ranks of one node copy from one another or sum, after they have written the sources.
    struct Memory {
        double footprint = 0;  // bytes of the slabs of all ranks together
        double bytes = 0;  // that each rank reads and writes
        double alone = 0;  // one rank works, the others do nothing
        double together = 0;  // all ranks work
    };
    int ranks = 1;  // of the node
    std::vector<Memory> copies, reductions;  // ascending footprints
    // Reductions of elements of 1, 2, 4 and 8 bytes; each touches the same number of bytes.
    std::vector<double> widths;
    double step = 0;  // one step of a lane of many steps
    // Between two ranks of a node; 0 if the node has only one rank.
    double call = 0;  // an operation with one round trip of flags
    double flag = 0;  // one way of each further round trip

    // Between two nodes; valid if has_links.
    bool has_links = false;
    bool one_host = false;  // both nodes are on one machine: no physical link limits them
    double signal = 0;  // one way of a signal, from many round trips
    double small_one_way = 0, small_both_ways = 0;  // each of many puts of a few bytes
    double large_bytes = 0;
    double large_one_way = 0, large_both_ways = 0;  // a put of large_bytes, without its latency
};

// Returns the machine on which the simulator takes the measured times. Fields that were not
// measured keep their value in `machine`. A pure function.
Machine fit_machine(const MeasuredTimes &times, bool tcp, Machine machine);

}  // namespace vescomm::internal
