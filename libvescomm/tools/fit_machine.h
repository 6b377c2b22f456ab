// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "topology/machine_file.h"

namespace vescomm {

// Seconds that small schedules took.
struct MeasuredTimes {
    // Ranks of one node copy from one another, and sum, while all of them do (`together`), or one
    // does and the others rest. All of them have written `footprint` bytes before.
    struct Memory {
        double footprint = 0;
        double bytes = 0;  // that each rank touches
        double alone = 0, together = 0;
    };
    int ranks = 1;  // of the node
    std::vector<Memory> copies, reductions;  // ascending footprints
    // Of a reduction of 1, 2, 4 and 8 bytes that touches equally many bytes.
    std::vector<double> widths;
    double step = 0;  // of a lane of many
    // Between two ranks of a node; 0 where it has only one.
    double call = 0;  // an operation in which each raises a flag and waits for the other's
    double flag = 0;  // each further time

    // Between two nodes, where there are two.
    bool wired = false;
    bool one_host = false;  // both are on one machine: there is no link that could be a limit
    double signal = 0;  // from one to the other, as part of many there and back
    double small_one_way = 0, small_both_ways = 0;  // each of many puts of a few bytes
    double large_bytes = 0;
    double large_one_way = 0, large_both_ways = 0;  // a put of so many bytes, less one signal
};

// What makes the simulator take as long. Pure. What was not measured stays as it is in `machine`.
Machine fit_machine(const MeasuredTimes &times, bool tcp, Machine machine);

}  // namespace vescomm
