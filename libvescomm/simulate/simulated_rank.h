// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "simulate/packets.h"
#include "simulate/ready_lanes.h"

namespace vescomm::internal {

// Work of a core.
enum class Work : std::uint8_t { none, step, sending, receiving };

// One rank: a thread that does one thing at a time.
struct SimulatedRank {
    ReadyLanes ready;
    std::uint32_t lane = no_index;  // current lane
    std::uint32_t lanes_left = 0;
    bool idle = false;
    bool flag_arrived = false;  // a flag came with bytes: advance lanes before the next packet
    Work work = Work::none;  // current work of its core
    Work last_transfer = Work::none;  // sending and receiving alternate
    std::uint32_t packet = no_index;  // packet of `work`
    IndexList outbox, inbox;  // of packets
    double clock = 0;  // time until which its core is busy
    double last_left = 0;  // time when its last put has left
    double slower = 1;  // Straggler::slower

    // Works for some seconds, which count as `on`.
    void spend(double &on, double seconds) {
        on += seconds * slower;
        clock += seconds * slower;
    }
};

}  // namespace vescomm::internal
