// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace vescomm::planner {

// One matrix and its owner.
struct Job {
    std::int64_t work = 0;
    std::size_t unit = 0;
    std::size_t item = 0;  // of the unit
    std::size_t rank = 0;  // the owner
};

// Moves jobs from the most loaded rank to a rank with a small load, or swaps two jobs, until the
// bound is met or nothing improves. `loads` may include work besides the jobs. Examines at most
// about 2^17 + more_steps pairs of jobs.
void even_out(std::span<Job> jobs, std::span<std::int64_t> loads, std::int64_t bound,
              std::int64_t more_steps);

}  // namespace vescomm::planner
