// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "schedule/problem.h"

namespace vescomm {

// The schedule checker. Runs the schedules of all ranks on symbolic memory, two operations in a
// row, with the caller rewriting its inputs in between, and returns the first fault as a sentence,
// or nothing:
//
//   - every output element arrives, exactly the right contributions in it, each exactly once;
//   - no two accesses to one element, one of them a write, are unordered (by vector clocks: so no
//     other timing can give another result, within an operation or across two of them);
//   - no lane waits for ever;
//   - nobody touches memory that it cannot reach, and flags only rise.
//
// Cost: O(steps * threads) time and memory, where threads are all lanes and puts of all ranks; for
// tests and for debug builds of small jobs.
std::string check(const Problem &problem, std::span<const Schedule> schedules);

}  // namespace vescomm
