// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The schedule checker must detect every fault: each test breaks a sound schedule and expects an
// error.
#include "schedule/check.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/algorithms.h"

namespace vescomm::internal {

void PrintTo(const AlgorithmEntry &entry, std::ostream *out) {
    *out << name_of(entry.collective) << " " << entry.name;
}

namespace {

// Irregular nodes, ranks out of order, every shard a different size.
Problem problem_for(const AlgorithmEntry &entry) {
    const std::vector<int> node_of{0, 1, 0, 0, 2, 1};
    Problem problem;
    problem.collective = entry.collective;
    problem.nodes = Nodes::from_numbers(node_of);
    problem.root = 2;
    problem.in_order = entry.in_order;
    if (entry.collective != Collective::barrier && entry.collective != Collective::all_to_all_v)
        problem.cuts = {0, 3, 10, 11, 16, 20, 32};
    return problem;
}

BufferProblem on_buffers(const AlgorithmEntry &entry, bool per_node) {
    BufferProblem problem(problem_for(entry));
    problem.per_node = per_node;
    problem.in_place = false;
    return problem;
}

// With a staging buffer that holds only a part of each block.
ArrayProblem on_arrays(const AlgorithmEntry &entry) {
    ArrayProblem problem(problem_for(entry));
    problem.staging = {3, 64};
    problem.partial = {1, 40};
    if (problem.collective == Collective::all_to_all_v) {
        std::vector<std::int64_t> counts;
        for (int i = 0; i < 36; ++i) counts.push_back(3 + i % 7);
        problem.exchange = Exchange::whole(6, counts);
    }
    return problem;
}

std::vector<Schedule> make_all(const AlgorithmEntry &entry, const AnyProblem &problem) {
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < problem->ranks(); ++rank)
        schedules.push_back(entry.make(problem, rank));
    return schedules;
}

class Check : public testing::TestWithParam<AlgorithmEntry> {
protected:
    void for_each_problem(const std::function<void(const AnyProblem &)> &body) {
        for (const bool per_node : {false, true}) {
            const BufferProblem problem = on_buffers(GetParam(), per_node);
            if (GetParam().solves(problem)) body(problem);
        }
        ArrayProblem problem = on_arrays(GetParam());
        // Blocks that are forwarded whole need a larger staging buffer.
        if (GetParam().name == "two_level") problem.staging.count = 2560;
        if (GetParam().solves(problem)) body(problem);
    }
};

// Removes all steps like the given one: waits and acquires from all ranks, others from one rank.
std::vector<Schedule> without(const std::vector<Schedule> &sound, int rank, const Step &like) {
    auto broken = sound;
    for (int r = 0; r < static_cast<int>(broken.size()); ++r) {
        // A wait of another rank may imply a missing wait.
        const bool everywhere = like.action == Action::wait || like.action == Action::acquire;
        if (r != rank && !everywhere) continue;
        for (Lane &lane : broken[r].lanes)
            std::erase_if(lane.steps(), [&](const Step &step) {
                return !like.moves() ? step.action == like.action && step.flag == like.flag
                                     : step == like;
            });
    }
    return broken;
}

TEST_P(Check, DetectsEveryMissingStep) {
    if (GetParam().name == "two_phase")
        GTEST_SKIP() << "the flags of one phase may replace those of the other";
    for_each_problem([](const AnyProblem &problem) {
        const auto sound = make_all(GetParam(), problem);
        ASSERT_EQ(check(problem, sound), "");
        for (int rank = 0; rank < problem->ranks(); ++rank)
            for (const Lane &lane : sound[rank].lanes)
                for (const Step &step : lane.steps()) {
                    // No other rank sees a signal of a rank that is alone on its node.
                    if (rank == 4 && step.action == Action::signal && step.peer == whole_node)
                        continue;
                    // If bytes move both ways, one flag of a staged schedule may replace another.
                    if (problem.arrays() != nullptr && !step.moves()) continue;
                    EXPECT_NE(check(problem, without(sound, rank, step)), "")
                        << "rank " << rank << " without: " << describe(lane, step);
                }
    });
}

TEST_P(Check, DetectsEveryMoveToAWrongPlace) {
    for_each_problem([](const AnyProblem &problem) {
        const auto sound = make_all(GetParam(), problem);
        for (std::size_t rank = 0; rank < sound.size(); ++rank)
            for (std::size_t lane = 0; lane < sound[rank].lanes.size(); ++lane)
                for (std::size_t at = 0; at < sound[rank].lanes[lane].steps().size(); ++at) {
                    auto broken = sound;
                    Step &step = broken[rank].lanes[lane].steps()[at];
                    if (!step.moves()) continue;
                    step.to.offset += 1;
                    EXPECT_NE(check(problem, broken), "")
                        << describe(sound[rank].lanes[lane], step);
                }
    });
}

// The last waits keep registered arrays unchanged while others read them.
TEST_P(Check, DetectsAMissingWaitForReadersOfRegisteredArrays) {
    for_each_problem([](const AnyProblem &problem) {
        const auto sound = make_all(GetParam(), problem);
        const std::vector<bool> all(static_cast<std::size_t>(problem->ranks()), true);
        const CheckedRegistrations registered{.source = all, .output = all, .in_place = {}};
        ASSERT_EQ(check(problem, sound, registered), "");
        auto broken = sound;
        std::size_t removed = 0;
        for (Schedule &schedule : broken)
            for (Lane &lane : schedule.lanes)
                removed += std::erase_if(
                    lane.steps(), [](const Step &step) { return step.when == When::registered; });
        if (removed > 0) {
            EXPECT_NE(check(problem, broken, registered), "");
        }
    });
}

TEST(CheckSchedules, DetectsARegisteredSourceThatTheResultReplaces) {
    const AlgorithmEntry &flat = *find_algorithm(Collective::all_reduce, "flat");
    ArrayProblem problem = on_arrays(flat);
    problem.nodes = Nodes::single(problem.ranks());
    const auto schedules = make_all(flat, problem);
    const std::vector<bool> all(static_cast<std::size_t>(problem.ranks()), true);
    EXPECT_EQ(check(problem, schedules, {.source = {}, .output = {}, .in_place = all}), "");
    EXPECT_NE(check(problem, schedules, {.source = all, .output = {}, .in_place = all}), "");
}

bool any_local_receives(const AnyProblem &problem, const std::vector<Schedule> &schedules,
                        std::size_t rank, int peer) {
    const int node = problem->nodes.node_of(static_cast<int>(rank));
    return std::ranges::any_of(problem->nodes.members(node), [&](int member) {
        return schedules[static_cast<std::size_t>(member)]
            .receive_mask[static_cast<std::size_t>(peer)];
    });
}

TEST_P(Check, DetectsEveryRepeatedPutOrSignal) {
    for_each_problem([](const AnyProblem &problem) {
        const auto sound = make_all(GetParam(), problem);
        for (std::size_t rank = 0; rank < sound.size(); ++rank)
            for (std::size_t lane = 0; lane < sound[rank].lanes.size(); ++lane)
                for (std::size_t at = 0; at < sound[rank].lanes[lane].steps().size(); ++at) {
                    auto broken = sound;
                    auto &steps = broken[rank].lanes[lane].steps();
                    const Step step = steps[at];
                    // A copy may be repeated, and so may a reduction that does not add to its own
                    // result. A put or a signal raises its flag a second time.
                    if (step.action != Action::put && step.action != Action::signal) continue;
                    if (step.conditional && !any_local_receives(problem, sound, rank, step.peer))
                        continue;
                    steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(at), step);
                    EXPECT_NE(check(problem, broken), "")
                        << describe(sound[rank].lanes[lane], step);
                }
    });
}

INSTANTIATE_TEST_SUITE_P(All, Check, testing::ValuesIn(algorithms().begin(), algorithms().end()),
                         [](const auto &info) {
                             return std::string(name_of(info.param.collective)) + "_" +
                                    std::string(info.param.name);
                         });

BufferProblem two_ranks() {
    BufferProblem problem;
    problem.collective = Collective::all_gather_v;
    problem.nodes = Nodes::single(2);
    problem.cuts = {0, 4, 8};
    return problem;
}

TEST(CheckNamed, NamesTheStepThatWaitsForEver) {
    const BufferProblem problem = two_ranks();
    std::vector<Schedule> schedules(2);
    for (int rank = 0; rank < 2; ++rank) {
        Lane &lane = schedules[rank].lanes.emplace_back();
        lane.wait(1 - rank, 0, 1);
        lane.signal_node(0, 1);
    }
    EXPECT_EQ(check(problem, schedules),
              "rank 0 waits for ever in lane 0: wait for rank 1 to raise flag 0 to 1");
}

TEST(CheckNamed, ReportsAContributionThatIsAddedTwice) {
    BufferProblem problem = two_ranks();
    problem.collective = Collective::reduce_scatter_v;
    auto schedules = make_all(*find_algorithm(Collective::reduce_scatter_v, "direct"), problem);
    for (Step &step : schedules[1].lanes[0].steps())
        if (step.action == Action::reduce) step.from = schedules[1].lanes[0].more(step)[0];
    EXPECT_NE(check(problem, schedules).find("adds the contribution of rank 1 twice"),
              std::string::npos);
}

TEST(CheckNamed, ReportsSumsThatAreNotInTheOrderOfRanks) {
    BufferProblem problem = two_ranks();
    problem.collective = Collective::reduce_scatter_v;
    problem.nodes = Nodes::from_sizes(std::vector<int>{1, 1});
    const auto schedules =
        make_all(*find_algorithm(Collective::reduce_scatter_v, "direct"), problem);
    EXPECT_EQ(check(problem, schedules), "");
    problem.in_order = true;
    EXPECT_NE(check(problem, schedules).find("not the order of ranks"), std::string::npos);
}

TEST(CheckNamed, ReportsMemoryThatCannotBeReached) {
    BufferProblem problem = two_ranks();
    problem.nodes = Nodes::from_sizes(std::vector<int>{1, 1});
    std::vector<Schedule> schedules(2);
    schedules[0].lanes.emplace_back().copy(problem.shard(1, 1), problem.shard(0, 1), 4);
    EXPECT_NE(check(problem, schedules).find("cannot reach the buffer of rank 1"),
              std::string::npos);
}

}  // namespace
}  // namespace vescomm::internal
