// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Checks every algorithm of the table for 1 to 33 ranks, several node shapes and random ragged
// cuts.
#include <gtest/gtest.h>

#include <random>

#include "schedule/algorithms.h"
#include "schedule/check.h"
#include "schedule/forwarded.h"
#include "support/number_in.h"
#include "transport/put_batch.h"

namespace vescomm::internal {

void PrintTo(const AlgorithmEntry &entry, std::ostream *out) {
    *out << name_of(entry.collective) << " " << entry.name;
}

namespace {

// The part of a problem that `rank` knows. In an all_to_all_v each rank knows only its own counts.
AnyProblem known_to(int rank, const AnyProblem &problem) {
    if (problem.buffers() != nullptr || problem->collective != Collective::all_to_all_v)
        return problem;
    ArrayProblem known = *problem.arrays();
    std::vector<std::int64_t> sends, receives;
    for (int peer = 0; peer < known.ranks(); ++peer) {
        sends.push_back(known.exchange.count(rank, peer));
        receives.push_back(known.exchange.count(peer, rank));
    }
    known.exchange = Exchange::known_to(rank, sends, receives);
    return known;
}

std::vector<Schedule> make_all(const AlgorithmEntry &entry, const AnyProblem &problem) {
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < problem->ranks(); ++rank)
        schedules.push_back(entry.make(known_to(rank, problem), rank));
    return schedules;
}

std::vector<std::int64_t> random_cuts(std::mt19937 &random, int ranks) {
    std::vector<std::int64_t> cuts{0};
    for (int rank = 0; rank < ranks; ++rank) {
        // Three of ten shards are empty, and one of ten is much larger than the others.
        const auto kind = random() % 10;
        const std::int64_t size = kind < 3 ? 0 : kind == 9 ? 5000 + random() % 5000 : random() % 20;
        cuts.push_back(cuts.back() + size);
    }
    return cuts;
}

// One node; one rank for each node; pairs; irregular nodes; cyclic placement.
std::vector<Nodes> shapes(std::mt19937 &random, int ranks) {
    std::vector<int> alone, pairs, irregular, cyclic;
    for (int rank = 0; rank < ranks; ++rank) {
        alone.push_back(rank);
        pairs.push_back(rank / 2);
        irregular.push_back(static_cast<int>(random() % 4));
        cyclic.push_back(rank % 3);
    }
    std::vector<Nodes> nodes{Nodes::single(ranks)};
    for (const auto &numbers : {alone, pairs, irregular, cyclic}) {
        const Nodes shape = Nodes::from_numbers(numbers);
        if (std::find(nodes.begin(), nodes.end(), shape) == nodes.end()) nodes.push_back(shape);
    }
    return nodes;
}

class Algorithms : public testing::TestWithParam<AlgorithmEntry> {};

// The part that is common to buffers and arrays.
Problem random_problem(const AlgorithmEntry &entry, const Nodes &nodes, std::mt19937 &random) {
    const int ranks = nodes.ranks();
    Problem problem;
    problem.collective = entry.collective;
    problem.nodes = nodes;
    problem.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
    problem.in_order = entry.in_order || nodes.count() == 1;
    if (entry.collective != Collective::barrier && entry.collective != Collective::all_to_all_v)
        problem.cuts = random_cuts(random, ranks);
    return problem;
}

TEST_P(Algorithms, AreCorrectFor1To33RanksOnAnyNodesWithRaggedCuts) {
    const AlgorithmEntry &entry = GetParam();
    std::mt19937 random(1);
    for (int ranks = 1; ranks <= 33; ++ranks) {
        for (const Nodes &nodes : shapes(random, ranks)) {
            for (const bool per_node : {false, true}) {
                for (const bool in_place : {false, true}) {
                    BufferProblem problem(random_problem(entry, nodes, random));
                    problem.per_node = per_node;
                    problem.in_place = in_place;
                    problem.contributions_are_sums = random() % 2 == 0;
                    if (!entry.solves(problem)) continue;
                    ASSERT_EQ(check(problem, make_all(entry, problem)), "")
                        << ranks << " ranks on " << nodes.count() << " nodes, "
                        << (per_node ? "a slab for each node, " : "a slab for each rank, ")
                        << (in_place ? "in place" : "out of place");
                }
            }
        }
    }
}

// One array in `one_in` is registered.
CheckedRegistrations random_arrays(int ranks, unsigned one_in, std::mt19937 &random) {
    CheckedRegistrations arrays;
    for (int rank = 0; rank < ranks; ++rank) {
        arrays.source.push_back(random() % one_in == 0);
        arrays.output.push_back(random() % one_in == 0);
    }
    return arrays;
}

// Some ranks of an all_reduce have one array. A rank whose result replaces its source while others
// may still read it does not register it (ArrayRegistration).
void put_in_place(CheckedRegistrations &arrays, int ranks, bool flat, std::mt19937 &random) {
    for (int rank = 0; rank < ranks; ++rank) {
        arrays.in_place.push_back(random() % 2 == 0);
        if (flat && arrays.in_place.back() && !arrays.source.empty())
            arrays.source[static_cast<std::size_t>(rank)] = false;
    }
}

// An eager put waits for no rank. Only the slot that its lane has acquired limits how many of them
// a program can start, and the receiver has to keep.
void expect_acquired_eager_puts(const Schedule &schedule) {
    for (const Lane &lane : schedule.lanes) {
        bool acquired = false;
        for (const Step &step : lane.steps()) {
            acquired |= step.action == Action::acquire;
            ASSERT_TRUE(acquired || !(step.action == Action::wait && step.eager));
        }
    }
}

// Few of the large numbers of ranks, whose checks take longest; all of them in suite slow.
bool is_sampled(int ranks) {
    return ranks <= 17 || ranks % 5 == 2 || ranks >= 32 ||
           vescomm::testing_support::number_in("VESCOMM_TEST_ALL_RANKS", 0) != 0;
}

// Blocks of a few elements, and staging buffers that hold from less than one block to all of them.
// The last vectors and staging buffers are a thousand times larger, so that messages are cut into
// slices.
TEST_P(Algorithms, AreCorrectForArraysWithAnySizeOfTheStagingBuffer) {
    const AlgorithmEntry &entry = GetParam();
    // Two streams, so that the problems do not depend on the arrays.
    std::mt19937 random(2), arrays(3);
    for (int ranks = 1; ranks <= 33; ++ranks) {
        if (!is_sampled(ranks)) continue;
        for (const Nodes &nodes : shapes(random, ranks)) {
            // All shapes for up to 9 ranks, a quarter of them for more.
            if (ranks > 9 && random() % 4 != 0) continue;
            for (const std::int64_t chunks :
                 {4, 2 * (ranks + 6), 80 * (ranks + 6), 40'000 * (ranks + 6)}) {
                ArrayProblem problem(random_problem(entry, nodes, random));
                const int scale = chunks > 10'000 ? 1000 : 1;
                for (std::size_t i = 1; i < problem.cuts.size(); ++i)
                    problem.cuts[i] =
                        problem.cuts[i - 1] + static_cast<std::int64_t>(random() % 7) * scale;
                problem.staging = {static_cast<std::int64_t>(random() % 10), chunks};
                problem.partial = {static_cast<std::int64_t>(random() % 10), chunks};
                problem.inlined = {static_cast<std::int64_t>(random() % 10), chunks * 10};
                if (entry.collective == Collective::all_to_all_v) {
                    std::vector<std::int64_t> counts;
                    for (int i = 0; i < ranks * ranks; ++i) counts.push_back(random() % 5);
                    problem.exchange = Exchange::whole(ranks, counts);
                    if (random() % 2 == 0)
                        problem.pairs = {
                            .begin = 11 + chunks + static_cast<std::int64_t>(random() % 9),
                            .stride = 7,
                            .beside = 2,
                            .count = static_cast<std::int64_t>(random() % 6)};
                }
                if (!entry.solves(problem)) continue;
                const std::vector<Schedule> schedules = make_all(entry, problem);
                for (const Schedule &schedule : schedules) expect_acquired_eager_puts(schedule);
                std::vector<CheckedRegistrations> masks{{}, random_arrays(ranks, 1, arrays)};
                if (scale == 1) masks.push_back(random_arrays(ranks, 2, arrays));
                for (CheckedRegistrations &registered : masks) {
                    // In long vectors, the checker's cells of one array for both become too many.
                    if (entry.collective == Collective::all_reduce && scale == 1)
                        put_in_place(registered, ranks, entry.name == "flat", arrays);
                    ASSERT_EQ(check(problem, schedules, registered), "")
                        << ranks << " ranks on " << nodes.count() << " nodes, a staging buffer of "
                        << chunks << ", sources that are registered: "
                        << testing::PrintToString(registered.source)
                        << ", outputs: " << testing::PrintToString(registered.output);
                }
            }
        }
    }
}

// Transports join such blocks in one message, which is what forwarding gains.
TEST(Forwarding, IsForBlocksThatAreJoined) {
    ArrayProblem problem;
    problem.nodes = Nodes::from_numbers(std::vector<int>{0, 0, 1, 1});
    const std::int64_t floats = slot_bytes(problem.nodes).staging / 4;
    problem.staging = {0, floats};
    EXPECT_EQ(static_cast<std::uint64_t>(largest_forwarded(problem, 4)) * 4, max_part_bytes);
    EXPECT_EQ(largest_forwarded(problem, 1000), floats / 4 / 1000);
}

// Forwarded blocks stay in a quarter of the staging buffer, even if the root has many more local
// peers than the receivers have.
TEST_P(Algorithms, ForwardWithinAQuarterOfTheStagingBuffer) {
    const AlgorithmEntry &entry = GetParam();
    constexpr int ranks = 43, ranks_of_root_node = 40;
    std::vector<int> node_of(ranks, 1);
    std::fill_n(node_of.begin(), ranks_of_root_node, 0);
    ArrayProblem problem;
    problem.collective = entry.collective;
    problem.nodes = Nodes::from_numbers(node_of);
    problem.root = ranks_of_root_node - 1;
    problem.staging = {5, 1 << 14};
    if (entry.collective == Collective::all_to_all_v)
        problem.exchange = Exchange::whole(ranks, std::vector<std::int64_t>(ranks * ranks, 3));
    else if (entry.collective != Collective::barrier)
        for (int i = 0; i <= ranks; ++i) problem.cuts.push_back(3 * i);
    if (!entry.solves(problem)) return;
    for (const Schedule &schedule : make_all(entry, problem)) {
        for (const Lane &lane : schedule.lanes) {
            for (const Step &step : lane.steps()) {
                if (step.action != Action::put || step.final_peer == no_rank) continue;
                ASSERT_LE(step.to.offset + step.count,
                          problem.staging.begin + problem.staging.count / 4);
            }
        }
    }
}

// Some shards need more chunks between nodes than a ring has slots; others are small or empty.
TEST_P(Algorithms, AreCorrectForLargeShardsThatPassInChunks) {
    const AlgorithmEntry &entry = GetParam();
    std::mt19937 random(3);
    for (const int ranks : {2, 3, 4, 5, 8}) {
        for (const Nodes &nodes : shapes(random, ranks)) {
            for (const bool in_place : {false, true}) {
                for (const bool contributions_are_sums : {false, true}) {
                    BufferProblem problem(random_problem(entry, nodes, random));
                    for (std::size_t i = 1; i < problem.cuts.size(); ++i)
                        problem.cuts[i] =
                            problem.cuts[i - 1] + (random() % 3 == 0
                                                       ? static_cast<int>(random() % 3)
                                                       : static_cast<int>(random() % 1'500'000));
                    problem.in_place = in_place;
                    problem.contributions_are_sums = contributions_are_sums;
                    if (!entry.suits(problem)) continue;
                    ASSERT_EQ(check(problem, make_all(entry, problem)), "")
                        << ranks << " ranks on " << nodes.count() << " nodes, "
                        << (in_place ? "in place, " : "out of place, ")
                        << (contributions_are_sums ? "plain sums" : "sums of another type");
                }
            }
        }
    }
}

// The size that the memory for partial sums has, and a report predicts.
TEST_P(Algorithms, NeedThePartialSumsThatTheyPredict) {
    const AlgorithmEntry &entry = GetParam();
    if (entry.collective != Collective::reduce_scatter_v) return;
    std::mt19937 random(4);
    for (int ranks = 1; ranks <= 33; ++ranks) {
        for (const Nodes &nodes : shapes(random, ranks)) {
            for (const bool large : {false, true}) {
                if (large && ranks > 8) continue;
                BufferProblem problem(random_problem(entry, nodes, random));
                problem.in_place = random() % 2 == 0;
                problem.contributions_are_sums = random() % 2 == 0;
                for (std::size_t i = 1; large && i < problem.cuts.size(); ++i)
                    problem.cuts[i] =
                        problem.cuts[i - 1] + static_cast<std::int64_t>(random() % 1'500'000);
                if (!entry.suits(problem)) continue;
                std::int64_t needed = 0;
                for (const Schedule &schedule : make_all(entry, problem))
                    needed = std::max(needed, schedule.partial);
                const auto predict = entry.max_partial;
                ASSERT_EQ(predict != nullptr ? predict(problem) : 0, needed)
                    << ranks << " ranks on " << nodes.count() << " nodes";
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Algorithms,
                         testing::ValuesIn(algorithms().begin(), algorithms().end()),
                         [](const auto &info) {
                             return std::string(name_of(info.param.collective)) + "_" +
                                    std::string(info.param.name);
                         });

}  // namespace
}  // namespace vescomm::internal
