// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulate/index_list.h"
#include "simulate/simulate.h"

namespace vescomm::internal {

// A step in the form that the simulator needs: with numbers of bytes instead of places.
struct SimulatedStep {
    double bytes = 0;  // copy, reduce: bytes read and written; put: bytes sent
    std::uint32_t value = 0;
    // put, signal: the peer, or whole_node. wait: the peer, or if `remote` an index in
    // SimulatedProgram::counters.
    std::int32_t peer = whole_node;
    Action action = Action::wait;
    std::uint8_t flag = 0;
    bool remote = false;  // wait for a rank of another node
    bool eager = false, conditional = false;  // as in Step
    bool fetches = false;  // copy, reduce: uses cache lines of another rank
    bool long_running = false;  // copy, reduce: other lanes continue after this step
};

struct SimulatedLane {
    std::uint32_t at = 0;  // index of the current step
    std::uint32_t end = 0;  // index after the last step
    std::uint32_t next = no_index;  // next lane that waits for the same flag
    std::int32_t rank = 0;
};

// The value of another node's flag as seen by one rank. Only flags that the rank waits for have a
// counter.
struct RemoteCounter {
    std::uint32_t key = 0;  // flag_key()
    std::uint32_t value = 0;
    IndexList waiting;
};

// The flag of a rank for its node.
struct LocalFlag {
    std::uint32_t raised = 0;  // value for the rank that raises it
    std::uint32_t seen = 0;  // value for its local peers
    IndexList waiting;
};

inline constexpr std::uint32_t flags_per_rank = flags_of_schedules;

inline std::uint32_t flag_key(int raiser, std::uint32_t flag) {
    return static_cast<std::uint32_t>(raiser) * flags_per_rank + flag;
}

// The schedules of all ranks, concatenated in order of ranks.
struct SimulatedProgram {
    std::vector<SimulatedStep> steps;
    std::vector<SimulatedLane> lanes;
    std::vector<RemoteCounter> counters;  // ascending keys within a rank
    // Indices where the lanes and counters of each rank begin; ranks + 1 entries.
    std::vector<std::uint32_t> lane_begin;
    std::vector<std::uint32_t> counter_begin;

    SimulatedProgram(const Nodes &nodes, const MakeSchedule &make, const ElementBytes &bytes);

    // The counter of rank `reader` for a flag; nullptr if no step of the rank waits for the flag.
    RemoteCounter *counter(int reader, std::uint32_t key);

    // A sentence that names the first lane of a rank that is not at its end. There must be one.
    std::string stuck(int rank) const;

private:
    void drop_unused_steps(const Nodes &nodes,
                           const std::vector<std::vector<std::uint8_t>> &receive_mask);
};

}  // namespace vescomm::internal
