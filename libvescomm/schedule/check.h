// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "schedule/problem.h"

namespace vescomm::internal {

// The schedule checker. Runs the schedules of all ranks on symbolic memory, two operations in a
// row; the caller rewrites its inputs in between. Returns the first fault as a sentence, or an
// empty string if all of these hold:
//
//   - every output element arrives, and contains each of its contributions exactly once;
//   - two accesses to one element are ordered if one of them is a write. Vector clocks record this,
//     so no other timing gives another result, within an operation or across two of them;
//   - no lane waits for ever;
//   - no rank accesses memory that it cannot reach, and flags only rise.
//
// Cost: O(steps * threads) time and memory, where threads are all lanes and puts of all ranks. For
// tests and for debug builds of small jobs.
//
// `registered`: the arrays that are registered.
std::string check(const AnyProblem &problem, std::span<const Schedule> schedules,
                  const CheckedRegistrations &registered = {});

}  // namespace vescomm::internal
