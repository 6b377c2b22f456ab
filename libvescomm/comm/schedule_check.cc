// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule_check.h"

#include "base/error.h"
#include "schedule/check.h"

namespace vescomm::internal {

void check_if_small(const AlgorithmEntry &algorithm, const AnyProblem &problem) {
    constexpr int max_ranks = 8;
    constexpr std::size_t max_steps = 60;
    if (problem->ranks() > max_ranks || problem->collective == Collective::all_to_all_v) return;
    std::vector<Schedule> schedules;
    std::size_t steps = 0;
    for (int rank = 0; rank < problem->ranks(); ++rank) {
        schedules.push_back(algorithm.make(problem, rank));
        for (const Lane &lane : schedules.back().lanes) steps += lane.steps().size();
        if (steps > max_steps) return;
    }
    const std::string fault = check(problem, schedules);
    if (!fault.empty())
        throw Error(VESCOMM_ERROR_INTERNAL,
                    "the schedules of " + std::string(name_of(problem->collective)) + " by " +
                        std::string(algorithm.name) + " are wrong: " + fault);
}

}  // namespace vescomm::internal
