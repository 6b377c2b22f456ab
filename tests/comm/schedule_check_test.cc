// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/schedule_check.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace vescomm::internal {
namespace {

BufferProblem gather_on(int ranks) {
    BufferProblem problem;
    problem.collective = Collective::all_gather_v;
    problem.nodes = Nodes::single(ranks);
    cut_evenly(640 * ranks, ranks, problem.cuts);
    return problem;
}

// A faulty schedule: all waits are missing.
Schedule without_waits(const BufferProblem &problem, int rank) {
    Schedule schedule = all_gather_v::direct(problem, rank);
    for (Lane &lane : schedule.lanes)
        std::erase_if(lane.steps(), [](const Step &step) { return step.action == Action::wait; });
    return schedule;
}

TEST(CheckIfSmall, AcceptsACorrectScheduleAndRejectsAFaultyOne) {
    AlgorithmEntry entry = *find_algorithm(Collective::all_gather_v, "direct");
    EXPECT_NO_THROW(check_if_small(entry, gather_on(3)));
    entry.make = without_waits;
    try {
        check_if_small(entry, gather_on(3));
        FAIL();
    } catch (const Error &error) {
        EXPECT_EQ(error.status, VESCOMM_ERROR_INTERNAL);
        EXPECT_EQ(
            std::string(error.what()).find("the schedules of all_gather_v by direct are wrong"), 0u)
            << error.what();
    }
}

TEST(CheckIfSmall, SkipsLargeSchedules) {
    AlgorithmEntry entry = *find_algorithm(Collective::all_gather_v, "direct");
    entry.make = without_waits;
    EXPECT_NO_THROW(check_if_small(entry, gather_on(100)));
}

}  // namespace
}  // namespace vescomm::internal
