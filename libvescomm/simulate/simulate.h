// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "schedule/problem.h"
#include "topology/machine.h"

namespace vescomm {

// Bytes of an element, and of a partial sum.
struct ElementBytes {
    int element = 4;
    int partial = 4;
};

// What one rank did in a collective, in seconds. It ends at its lateness and the sum of the rest.
struct RankTimes {
    double end = 0;  // since the collective began
    double copying = 0;
    double reducing = 0;
    double sending = 0;  // handing over puts and signals, and until the last of them has left
    double receiving = 0;  // taking in those of others
    double stepping = 0;  // what the call costs, and steps that move nothing
    double waiting = 0;
};

struct Simulation {
    double seconds = 0;  // until the last rank is at its end
    std::vector<RankTimes> ranks;
    std::int64_t steps = 0;  // that all ranks did
};

// How fast memory is for a problem: by how much of what the ranks of the largest node hold fits
// their cache.
MemorySpeed speed_for(const Problem &problem, const ElementBytes &bytes, const Machine &machine);

// One rank's schedule. It is asked for once for each rank, in order.
using MakeSchedule = std::function<Schedule(int rank)>;

// Runs the schedules of all ranks on a modelled machine: discrete events, the same result every
// time. Each rank is one thread, which does one thing at a time: it takes in what has come, hands
// over what is to be put, and goes through its lanes as the executor does. Where a core takes bytes
// in, a flag that comes with them is looked at before more are.
//
//   copy, reduce   at the speed of a core; where the ranks of a node ask for more than its memory
//                  or its cores give, all of them are slowed down alike
//   put            handed over, where a core has to copy in pieces, and then on its way by itself:
//                  it queues for the sender's share, for the rail, for the switch, and at the other
//                  end, is cut through, and taken in there. One that may come early is sent at
//                  once, and raises its flag when the receiver expects it.
//   signal         handed over, arrives after its latency ahead of what queues, and is taken in
//   acquire        finds the memory released
//
// Throws Error(INTERNAL) naming a rank when all of them wait; check() would have found that.
//
// Cost: O(steps * log(steps)) time; 24 bytes for each step, 24 for each lane and 12 for each flag
// that another node raises. A schedule is let go as soon as it is read.
Simulation simulate(const Problem &problem, const MakeSchedule &make, const ElementBytes &bytes,
                    const Machine &machine);

}  // namespace vescomm
