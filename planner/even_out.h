// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace vescomm::planner {

// One matrix, and who has it.
struct Job {
    std::int64_t work = 0;
    std::size_t unit = 0;
    std::size_t item = 0;  // of the unit
    std::size_t rank = 0;
};

// Moves jobs from the rank that has most to one that has little, or swaps two, as long as that
// helps and the bound is not met. `loads` may hold more than the jobs. Looks at no more than about
// 2^17 pairs of jobs, and `more_steps`.
void even_out(std::span<Job> jobs, std::span<std::int64_t> loads, std::int64_t bound,
              std::int64_t more_steps);

}  // namespace vescomm::planner
