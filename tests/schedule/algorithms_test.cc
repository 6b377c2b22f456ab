// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Proves every algorithm of the table for 1 to 33 ranks, several node shapes and random ragged
// cuts.
#include <gtest/gtest.h>

#include <random>

#include "schedule/algorithms.h"
#include "schedule/check.h"

namespace vescomm {

void PrintTo(const AlgorithmEntry &entry, std::ostream *out) {
    *out << name_of(entry.collective) << " " << entry.name;
}

namespace {

std::vector<Schedule> make_all(const AlgorithmEntry &entry, const Problem &problem) {
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < problem.ranks(); ++rank)
        schedules.push_back(entry.make(problem, rank));
    return schedules;
}

std::vector<std::int64_t> random_cuts(std::mt19937 &random, int ranks) {
    std::vector<std::int64_t> cuts{0};
    for (int rank = 0; rank < ranks; ++rank) {
        // A third of the shards are empty, and one in ten dwarfs the others.
        const auto kind = random() % 10;
        const std::int64_t size = kind < 3 ? 0 : kind == 9 ? 500 + random() % 500 : random() % 20;
        cuts.push_back(cuts.back() + size);
    }
    return cuts;
}

// One node; every rank its own; pairs; irregular nodes; ranks dealt out in turn.
std::vector<Nodes> shapes(std::mt19937 &random, int ranks) {
    std::vector<int> alone, pairs, irregular, dealt;
    for (int rank = 0; rank < ranks; ++rank) {
        alone.push_back(rank);
        pairs.push_back(rank / 2);
        irregular.push_back(static_cast<int>(random() % 4));
        dealt.push_back(rank % 3);
    }
    std::vector<Nodes> nodes{Nodes::single(ranks)};
    for (const auto &numbers : {alone, pairs, irregular, dealt}) {
        const Nodes shape = Nodes::from_numbers(numbers);
        if (std::find(nodes.begin(), nodes.end(), shape) == nodes.end()) nodes.push_back(shape);
    }
    return nodes;
}

class Algorithms : public testing::TestWithParam<AlgorithmEntry> {};

TEST_P(Algorithms, AreProvedFor1To33RanksOnAnyNodesWithRaggedCuts) {
    const AlgorithmEntry &entry = GetParam();
    std::mt19937 random(1);
    for (int ranks = 1; ranks <= 33; ++ranks) {
        for (const Nodes &nodes : shapes(random, ranks)) {
            for (const bool per_node : {false, true}) {
                for (const bool in_place : {false, true}) {
                    Problem problem;
                    problem.collective = entry.collective;
                    problem.nodes = nodes;
                    problem.per_node = per_node;
                    problem.in_place = in_place;
                    problem.root = static_cast<int>(random() % ranks);
                    if (entry.collective != Collective::barrier)
                        problem.cuts = random_cuts(random, ranks);
                    if (!entry.suits(problem)) continue;
                    ASSERT_EQ(check(problem, make_all(entry, problem)), "")
                        << ranks << " ranks on " << nodes.count() << " nodes, "
                        << (per_node ? "a slab for each node, " : "a slab for each rank, ")
                        << (in_place ? "in place" : "out of place");
                }
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
}  // namespace vescomm
