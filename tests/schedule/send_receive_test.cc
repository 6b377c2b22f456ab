// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Checks messages from every rank to every rank at the same time, and breaks them to test that the
// schedule checker detects it.
#include "schedule/send_receive.h"

#include <gtest/gtest.h>

#include <random>

#include "schedule/check.h"

namespace vescomm::internal {
namespace {

// Chunks of `chunk` elements, and counts below `max`.
ArrayProblem all_to_all(const Nodes &nodes, std::int64_t chunk, unsigned max,
                        std::mt19937 &random) {
    const int ranks = nodes.ranks();
    std::vector<std::int64_t> counts;
    for (int i = 0; i < ranks * ranks; ++i) counts.push_back(random() % max);
    ArrayProblem problem;
    problem.collective = Collective::all_to_all_v;
    problem.nodes = nodes;
    problem.pairwise_flags = true;
    problem.exchange = Exchange::whole(ranks, counts);
    problem.staging = {0, 2 * chunk * ranks};
    return problem;
}

std::vector<Schedule> make_all(const ArrayProblem &problem) {
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < problem.ranks(); ++rank)
        schedules.push_back(send_receive(problem, rank));
    return schedules;
}

TEST(SendReceive, IsCorrectFor1To17RanksOnAnyNodesWithAnyChunkSize) {
    std::mt19937 random(3);
    for (int ranks = 1; ranks <= 17; ++ranks) {
        std::vector<int> alone, pairs, irregular;
        for (int rank = 0; rank < ranks; ++rank) {
            alone.push_back(rank);
            pairs.push_back(rank / 2);
            irregular.push_back(static_cast<int>(random() % 4));
        }
        for (const auto &numbers : {std::vector<int>(alone.size(), 0), alone, pairs, irregular}) {
            for (const std::int64_t chunk : {1, 3, 100}) {
                const ArrayProblem problem =
                    all_to_all(Nodes::from_numbers(numbers), chunk, 12, random);
                ASSERT_TRUE(can_send_receive(problem));
                ASSERT_EQ(check(problem, make_all(problem)), "")
                    << ranks << " ranks, chunks of " << chunk;
            }
        }
    }
}

TEST(SendReceive, DetectsEveryMissingAcquireAndMove) {
    std::mt19937 random(4);
    const ArrayProblem problem =
        all_to_all(Nodes::from_numbers(std::vector<int>{0, 1, 0, 1}), 2, 10, random);
    const auto sound = make_all(problem);
    ASSERT_EQ(check(problem, sound), "");
    int broken = 0;
    for (std::size_t rank = 0; rank < sound.size(); ++rank)
        for (std::size_t lane = 0; lane < sound[rank].lanes.size(); ++lane)
            for (std::size_t at = 0; at < sound[rank].lanes[lane].steps().size(); ++at) {
                auto schedules = sound;
                auto &steps = schedules[rank].lanes[lane].steps();
                const Step step = steps[at];
                // A rank starts its next operation when all its messages are complete. The acquire
                // of a receiver, or of a message to itself, then never waits. The flag of one chunk
                // may replace that of another.
                const bool never_waits = step.action == Action::acquire &&
                                         (step.value == 0 || step.peer == static_cast<int>(rank));
                if (never_waits || step.action == Action::signal || step.action == Action::wait)
                    continue;
                steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(at));
                EXPECT_NE(check(problem, schedules), "")
                    << "rank " << rank << " without: " << describe(sound[rank].lanes[lane], step);
                ++broken;
            }
    EXPECT_GT(broken, 30);
}

// Removes all waits or all signals of one flag on all ranks.
TEST(SendReceive, DetectsMissingFlags) {
    std::mt19937 random(5);
    const ArrayProblem problem =
        all_to_all(Nodes::from_numbers(std::vector<int>{0, 1, 0, 1}), 2, 10, random);
    for (const Action action : {Action::wait, Action::signal})
        for (const std::uint32_t flag : {0u, 1u}) {
            auto schedules = make_all(problem);
            for (Schedule &schedule : schedules)
                for (Lane &lane : schedule.lanes)
                    std::erase_if(lane.steps(), [&](const Step &step) {
                        return step.action == action && step.flag == flag;
                    });
            EXPECT_NE(check(problem, schedules), "");
        }
}

TEST(SendReceive, NotifiesTheReceiverOfAnEmptyMessage) {
    const Nodes nodes = Nodes::single(2);
    const Message nothing{{0, Region::source, 0}, {1, Region::output, 0}, 0};
    Schedule sender, receiver;
    sender.lanes.push_back(send(nodes, 4, nothing));
    receiver.lanes.push_back(receive(nodes, 4, nothing));
    EXPECT_EQ(describe(sender.lanes[0], sender.lanes[0].steps().back()),
              "raise flag 0 to 1 for rank 1");
    EXPECT_EQ(describe(receiver.lanes[0], receiver.lanes[0].steps().back()),
              "raise flag 1 to 1 for rank 0");
    EXPECT_EQ(sender.lanes[0].steps().size(), 2u);
    EXPECT_EQ(receiver.lanes[0].steps().size(), 3u);
}

}  // namespace
}  // namespace vescomm::internal
