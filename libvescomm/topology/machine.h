// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <vector>

namespace vescomm::internal {

// Memory speed in bytes per second. All bytes that are read or written count: a copy reads and
// writes each byte, a reduction of k contributions reads k times and writes once. 0: no limit.
struct MemorySpeed {
    double copy = 0;  // of one core
    double reduce = 0;  // of one core
    double node = 0;  // limit of all cores of a node together

    bool operator==(const MemorySpeed &) const = default;
};

// Share of a working set that lies in memory instead of the cache: 0 up to the size of the cache, 1
// from twice that size. When the working set exceeds the cache, the share that stays cached shrinks
// in proportion.
inline double share_in_memory(double working_set_bytes, double cache_bytes) {
    return std::clamp(working_set_bytes / cache_bytes - 1, 0.0, 1.0);
}

// A rank that is late or slow.
struct Straggler {
    int rank = 0;
    double late_seconds = 0;  // delay of its call of the collective
    double slower = 1;  // factor on all times of its core

    bool operator==(const Straggler &) const = default;
};

// Performance of a cluster of equal nodes: the parameters of the simulator (simulate/). A plain
// value. Decisions that all ranks must take alike need the same value on every rank. A limit of 0
// means no limit.
//
// The defaults are round numbers for a current server: memory as measured on the machine of
// docs/performance.md, and one network card of 200 Gbit/s for each rank, with RDMA. with_tcp()
// gives the defaults for TCP. `vescomm-info --measure` measures the real numbers (machine_file.h).
struct Machine {
    // Within a node.
    int cores = 0;  // of a host; 0: one for each rank
    int nodes_per_host = 1;  // nodes that share cores and cache: containers of one machine
    double cache_bytes = 32 << 20;  // of a host, shared by its ranks
    MemorySpeed in_cache{.copy = 110e9, .reduce = 90e9, .node = 0};  // working set fits the cache
    MemorySpeed in_memory{.copy = 40e9, .reduce = 35e9, .node = 300e9};  // from twice the cache
    // Speed of reductions of elements of 1, 2, 4, and 8 or more bytes, relative to elements of 4
    // bytes.
    std::array<double, 4> reduce_of_width{1, 1, 1, 1};
    double call_seconds = 60e-9;  // core time to start an operation; twice that on arrays
    double step_seconds = 20e-9;  // core time of any step
    double flag_seconds = 100e-9;  // until a local peer sees a raised flag, or gets first bytes
    double switch_seconds = 3e-6;  // until a shared core switches to the next of its ranks

    // Between nodes. A rank uses the rail of number (local rank modulo rails) of its node.
    int rails = 0;  // network cards of a node; 0: one for each rank
    double put_step_seconds = 200e-9;  // core time to hand over a put or a signal
    double put_core_bytes = 0;  // bytes per second at which a core hands over: TCP copies
    double receive_seconds = 100e-9;  // core time to receive a put or a signal
    double receive_core_bytes = 0;  // bytes per second at which a core receives
    double put_seconds = 1.9e-6;  // from handing over a put until its first byte arrives
    double signal_seconds = 1.9e-6;  // from handing over a signal until it arrives
    double rail_bytes = 25e9;  // bytes per second of a rail in each direction
    double rank_bytes = 0;  // bytes per second that one rank can send

    // Switches. `nodes_per_switch` nodes share the links of a switch to the rest of the network.
    // These links carry the full rate of the nodes divided by `oversubscription`. 0 nodes: every
    // node reaches every other node at full speed.
    int nodes_per_switch = 0;
    double oversubscription = 1;

    std::vector<Straggler> stragglers;

    // Returns this machine with links over TCP: copies and system calls of the kernel at both ends,
    // and one card of 100 Gbit/s for each node.
    Machine with_tcp() const {
        Machine machine = *this;
        machine.rails = 1;
        machine.put_step_seconds = 3e-6;
        machine.put_core_bytes = 8e9;
        machine.receive_seconds = 2e-6;
        machine.receive_core_bytes = 10e9;
        machine.put_seconds = machine.signal_seconds = 10e-6;
        machine.rail_bytes = 12.5e9;
        return machine;
    }

    bool operator==(const Machine &) const = default;
};

}  // namespace vescomm::internal
