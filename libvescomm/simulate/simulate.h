// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "simulate/memory_speed.h"

namespace vescomm::internal {

// Time of one rank in a collective, in seconds. `end` is the lateness of the rank plus the sum of
// the other members.
struct RankTimes {
    double end = 0;  // since the collective began
    double copying = 0;
    double reducing = 0;
    double sending = 0;  // handing over puts and signals, and waiting until the last put has left
    double receiving = 0;  // receiving puts and signals of other ranks
    double stepping = 0;  // cost of the call, and of steps that move no bytes
    double waiting = 0;
};

struct Simulation {
    double seconds = 0;  // end of the last rank
    std::vector<RankTimes> ranks;
    std::int64_t steps = 0;  // of all ranks together
};

// Makes the schedule of one rank. It is called once for each rank, in order of ranks.
using MakeSchedule = std::function<Schedule(int rank)>;

// Runs the schedules of all ranks on a modelled machine, as a deterministic discrete-event
// simulation. Each rank is one thread that does one thing at a time: it receives packets, hands
// over its own packets, and advances its lanes in the order of the executor. If a core copies
// received bytes, the rank advances its lanes after a flag has arrived, before it receives the next
// packet.
//
//   copy, reduce   run at the speed of a core. If the ranks of a host ask for more than its memory
//                  or its cores give, all of them are slowed down by the same factor.
//   put            is handed over, in chunks if a core has to copy, and then proceeds by itself: it
//                  queues for the limit of the sender, for the rail, for the switch, and for both
//                  at the other end, with cut-through, and is received there. An eager put is sent
//                  at once, and raises its flag when the receiver expects it.
//   signal         is handed over, arrives after its latency ahead of queued puts, and is received.
//   acquire        does not wait: the memory has been released.
//
// Throws Error(INTERNAL) that names a rank if all remaining ranks wait; the schedule checker finds
// such schedules.
//
// Cost: O(steps * log(steps)) time; 24 bytes for each step, 24 for each lane and 12 for each flag
// of another node. Each schedule is freed as soon as it has been read.
Simulation simulate(const AnyProblem &problem, const MakeSchedule &make, const ElementBytes &bytes,
                    const Machine &machine);

}  // namespace vescomm::internal
