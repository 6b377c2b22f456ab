// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// How near the cores of the ranks are to one another. In a virtual machine the host moves them,
// also during a run.
#pragma once

namespace vescomm::perf {

// Nanoseconds that one cache line takes from the first core that this process may use to another of
// the first `ranks` cores, one way: for the core that is the farthest. -1: there is only one core,
// or threads cannot be bound. Takes less than a millisecond for each core. No rank should run
// meanwhile.
double measure_line_ns(int ranks);

// Cores that share a cache exchange lines in less than this time; others are far from one another.
constexpr double near_line_ns = 120;

}  // namespace vescomm::perf
