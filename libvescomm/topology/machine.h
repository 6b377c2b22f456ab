// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <vector>

namespace vescomm {

// How fast a core moves memory, in bytes per second that it touches: a copy reads and writes, a
// reduction of k contributions reads k times and writes once.
struct MemorySpeed {
    double copy = 0;
    double reduce = 0;
    double node = 0;  // the most that all cores of a node reach together

    bool operator==(const MemorySpeed &) const = default;
};

// Which share of the bytes that are held counts as being in memory: what a cache holds of more than
// it has room for is the less the more that is.
inline double share_in_memory(double held, double cache_bytes) {
    return std::clamp(held / cache_bytes - 1, 0.0, 1.0);
}

// A rank that is not like the others.
struct Straggler {
    int rank = 0;
    double late_seconds = 0;  // it calls the collective so much later
    double slower = 1;  // whatever its core does takes so many times as long

    bool operator==(const Straggler &) const = default;
};

// What a cluster of equal nodes can do: the numbers from which the simulator (simulate/) takes its
// times. A plain value, and the same on every rank wherever something is decided by it. Every
// limit that is 0 is none.
//
// The defaults are round numbers for a server of these years: memory as measured on the machine of
// docs/performance.md, and one network card of 200 Gbit/s for each rank, with RDMA. with_tcp() has
// those for TCP. `vescomm-info --measure` finds out what is true where it runs (machine_file.h).
struct Machine {
    // Within a node.
    int cores = 0;  // of a host; 0: one for each rank
    int nodes_per_host = 1;  // that share cores and cache: containers of one machine
    double cache_bytes = 32 << 20;  // of a host, which its ranks share; past twice that, in_memory
    MemorySpeed in_cache{.copy = 110e9, .reduce = 90e9, .node = 0};
    MemorySpeed in_memory{.copy = 40e9, .reduce = 35e9, .node = 300e9};
    // How much faster reductions of elements of 1, 2, 4 and 8 bytes are than those of 4.
    std::array<double, 4> reduce_of_width{1, 1, 1, 1};
    double call_seconds = 60e-9;  // that starting an operation costs; on arrays twice that
    double step_seconds = 20e-9;  // that any step costs its core
    double flag_seconds = 100e-9;  // until a neighbour sees a flag that was raised, or gets bytes
    double switch_seconds = 3e-6;  // until a core that ranks share gets round to the next of them

    // Between nodes. The ranks of a node use its rails in turn: local rank modulo rails.
    int rails = 0;  // network cards of a node; 0: one for each rank
    double put_step_seconds = 200e-9;  // that handing over a put or a signal costs the core
    double put_core_bytes = 0;  // bytes per second at which a core hands over: over TCP it copies
    double receive_seconds = 100e-9;  // that taking in a put or a signal costs the core
    double receive_core_bytes = 0;  // bytes per second at which a core takes in
    double put_seconds = 1.9e-6;  // from when it is handed over until its first byte arrives
    double signal_seconds = 1.9e-6;  // the same of a signal
    double rail_bytes = 25e9;  // per second, out and in at the same time
    double rank_bytes = 0;  // per second, that one rank can send

    // The fabric: so many nodes share the links of a switch, which carry less than what its nodes
    // could send by this factor. 0: every node reaches every other one at full speed.
    int nodes_per_switch = 0;
    double oversubscription = 1;

    std::vector<Straggler> stragglers;

    // The same, with links over TCP: the kernel's copies and system calls at both ends, and one
    // card of 100 Gbit/s for each node.
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

}  // namespace vescomm
