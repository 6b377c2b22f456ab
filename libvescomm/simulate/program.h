// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "simulate/simulate.h"

namespace vescomm {

// A step as the simulator needs it: bytes instead of places.
struct SimulatedStep {
    double bytes = 0;  // copy, reduce: that it touches; put: that it sends
    std::uint32_t value = 0;
    // put, signal: the peer, or whole_node. wait: the peer, or which counter (`remote`).
    std::int32_t peer = whole_node;
    Action action = Action::wait;
    std::uint8_t flag = 0;
    bool remote = false;
    bool eager = false, conditional = false;  // as of Step
    bool fetches = false;  // copy, reduce: from or to the memory of another rank
};

inline constexpr std::uint32_t nobody = std::numeric_limits<std::uint32_t>::max();

// Lanes in a row, which wait for a flag or are ready to go on.
struct LaneList {
    std::uint32_t first = nobody;
    std::uint32_t last = nobody;
};

struct SimulatedLane {
    std::uint32_t at = 0;
    std::uint32_t end = 0;
    std::uint32_t next = nobody;  // in the list that it is in
    std::int32_t rank = 0;
};

// What a rank of one node knows of a flag of a rank of another one. Only flags that somebody waits
// for have one.
struct RemoteCounter {
    std::uint32_t key = 0;  // remote_key()
    std::uint32_t value = 0;
    LaneList waiting;
};

inline constexpr std::uint32_t flags_per_rank = inline_flag + 1;

inline std::uint32_t flag_key(int raiser, std::uint32_t flag) {
    return static_cast<std::uint32_t>(raiser) * flags_per_rank + flag;
}

// The schedules of all ranks, one after another.
struct Program {
    std::vector<SimulatedStep> steps;
    std::vector<SimulatedLane> lanes;
    std::vector<RemoteCounter> counters;  // of a rank: ascending keys
    // Where those of a rank begin; one more than there are ranks.
    std::vector<std::uint32_t> lane_begin;
    std::vector<std::uint32_t> counter_begin;

    Program(const Problem &problem, const MakeSchedule &make, const ElementBytes &bytes);

    // nullptr when nobody waits for it.
    RemoteCounter *counter(int reader, std::uint32_t key);

private:
    void drop_unused_steps(const Nodes &nodes,
                           const std::vector<std::vector<std::uint8_t>> &receive_mask);
};

}  // namespace vescomm
