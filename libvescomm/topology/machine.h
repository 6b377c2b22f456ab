// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

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
// docs/performance.md, and one network card of 200 Gbit/s for each rank.
struct Machine {
    // Within a node.
    int cores = 0;  // of a node; 0: one for each rank
    double cache_bytes = 32 << 20;  // of a node, which its ranks share
    MemorySpeed in_cache{.copy = 110e9, .reduce = 90e9, .node = 0};
    MemorySpeed in_memory{.copy = 40e9, .reduce = 35e9, .node = 300e9};
    double step_seconds = 20e-9;  // that any step costs its core
    double flag_seconds = 150e-9;  // until a neighbour sees a flag that was raised
    double switch_seconds = 1e-6;  // until a core that ranks share gets round to the next of them

    // Between nodes. The ranks of a node use its rails in turn: local rank modulo rails.
    int rails = 0;  // network cards of a node; 0: one for each rank
    double put_step_seconds = 200e-9;  // that handing over a put or a signal costs the core
    double put_core_bytes = 0;  // bytes per second at which a core hands over: over TCP it copies
    double put_seconds = 2e-6;  // from when it is handed over until its first byte arrives
    double signal_seconds = 2e-6;  // until a rank of another node sees a flag
    double rail_bytes = 25e9;  // per second, out and in at the same time
    double rank_bytes = 0;  // per second, that one rank can send

    // The fabric: so many nodes share the links of a switch, which carry less than what its nodes
    // could send by this factor. 0: every node reaches every other one at full speed.
    int nodes_per_switch = 0;
    double oversubscription = 1;

    std::vector<Straggler> stragglers;

    bool operator==(const Machine &) const = default;
};

}  // namespace vescomm
