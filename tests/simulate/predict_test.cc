// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "simulate/predict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "base/error.h"
#include "simulate/select.h"

namespace vescomm::internal {
namespace {

// The part that is common to buffers and arrays.
Problem common_of(Collective collective, const Nodes &nodes, std::int64_t elements) {
    Problem problem;
    problem.collective = collective;
    problem.nodes = nodes;
    const int ranks = problem.ranks();
    if (collective != Collective::barrier && collective != Collective::all_to_all_v)
        for (int rank = 0; rank <= ranks; ++rank) problem.cuts.push_back(elements * rank / ranks);
    return problem;
}

BufferProblem on_buffers(Collective collective, const Nodes &nodes, std::int64_t elements) {
    return BufferProblem(common_of(collective, nodes, elements));
}

ArrayProblem on_arrays(Collective collective, const Nodes &nodes, std::int64_t elements) {
    ArrayProblem problem(common_of(collective, nodes, elements));
    const SlotBytes sizes = slot_bytes(nodes);
    problem.staging = {0, sizes.staging / 4};
    problem.partial = {0, sizes.partial / 4};
    const int ranks = problem.ranks();
    if (collective == Collective::all_to_all_v)
        problem.exchange = Exchange::whole(
            ranks, std::vector<std::int64_t>(static_cast<std::size_t>(ranks * ranks),
                                             elements / ranks / ranks));
    return problem;
}

Nodes even(int nodes, int size) {
    return Nodes::from_sizes(std::vector<int>(static_cast<std::size_t>(nodes), size));
}

double simulated(const AlgorithmEntry &entry, const AnyProblem &problem, const Machine &machine) {
    return simulate(
               problem, [&](int rank) { return entry.make(problem, rank); }, {}, machine)
        .seconds;
}

// Calls body(entry, problem) for every algorithm that solves the problem.
template <typename Body>
void for_each_algorithm(const Nodes &nodes, std::int64_t elements, const Body &body) {
    for (const AlgorithmEntry &entry : algorithms()) {
        for (const bool arrays : {false, true}) {
            BufferProblem in_buffers = on_buffers(entry.collective, nodes, elements);
            in_buffers.per_node = entry.name == "slab";
            const AnyProblem problem =
                arrays ? AnyProblem(on_arrays(entry.collective, nodes, elements))
                       : AnyProblem(in_buffers);
            if (!entry.solves(problem)) continue;
            SCOPED_TRACE(testing::Message() << name_of(entry.collective) << " " << entry.name
                                            << (arrays ? " of arrays" : "") << ", " << nodes.ranks()
                                            << " ranks, " << elements);
            body(entry, problem);
        }
    }
}

TEST(Predict, EqualsTheSimulationOfFewRanks) {
    for (const Nodes &nodes : {even(1, 1), even(1, 7), even(4, 8)})
        for (const std::int64_t elements : {100, 100000})
            for_each_algorithm(nodes, elements, [](const auto &entry, const auto &problem) {
                EXPECT_EQ(predict(entry, problem, {}, {}), simulated(entry, problem, {}));
            });
}

TEST(Predict, IsNearTheSimulationOfManyRanks) {
    for (const Nodes &nodes : {even(1, 96), even(64, 1), even(24, 4), even(8, 16)})
        for (const std::int64_t elements : {1000, 1000000})
            for_each_algorithm(nodes, elements, [](const auto &entry, const auto &problem) {
                const double ratio =
                    *predict(entry, problem, {}, {}) / simulated(entry, problem, {});
                EXPECT_GT(ratio, 0.65);
                EXPECT_LT(ratio, 1.35);
            });
}

// With fewer ranks, the shares of a vector that every rank has as a whole would be larger.
TEST(Predict, KeepsTheSizeOfSharesOfAlgorithmsByShare) {
    const AlgorithmEntry &two_phase = *find_algorithm(Collective::all_reduce, "two_phase");
    for (const std::int64_t elements : {1000, 16000}) {
        const ArrayProblem problem = on_arrays(Collective::all_reduce, even(40, 8), elements);
        EXPECT_NEAR(*predict(two_phase, problem, {}, {}) / simulated(two_phase, problem, {}), 1,
                    0.35);
    }
}

TEST(Predict, ExtrapolatesToVectorsThatFillTheStagingBufferOften) {
    for (const Nodes &nodes : {even(1, 4), even(3, 2)})
        for_each_algorithm(nodes, 20 << 18, [](const auto &entry, const auto &problem) {
            const double ratio = *predict(entry, problem, {}, {}) / simulated(entry, problem, {});
            EXPECT_GT(ratio, 0.8);
            EXPECT_LT(ratio, 1.25);
        });
}

// One rank owns everything: its shard decides, not the average shard.
TEST(Predict, ConsidersTheLargestShard) {
    BufferProblem problem = on_buffers(Collective::all_gather_v, even(32, 4), 1 << 20);
    const AlgorithmEntry &slab = *find_algorithm(Collective::all_gather_v, "slab");
    problem.per_node = true;
    const double equal = *predict(slab, problem, {}, {});
    for (int rank = 0; rank <= problem.ranks(); ++rank)
        problem.cuts[static_cast<std::size_t>(rank)] = rank <= 77 ? 0 : 1 << 20;
    const double ragged = *predict(slab, problem, {}, {});
    EXPECT_GT(ragged, 20 * equal);
    EXPECT_NEAR(ragged / simulated(slab, problem, {}), 1, 0.35);
}

TEST(Predict, KeepsTheOrderOfRanks) {
    std::vector<int> cyclic;
    for (int rank = 0; rank < 128; ++rank) cyclic.push_back(rank % 16);
    const AlgorithmEntry &ring = *find_algorithm(Collective::all_gather_v, "ring");
    for (const Nodes &nodes : {even(16, 8), Nodes::from_numbers(cyclic)}) {
        const BufferProblem problem = on_buffers(Collective::all_gather_v, nodes, 1 << 20);
        EXPECT_NEAR(*predict(ring, problem, {}, {}) / simulated(ring, problem, {}), 1, 0.25);
    }
}

TEST(Predict, IgnoresStragglers) {
    const BufferProblem problem = on_buffers(Collective::all_gather_v, even(2, 2), 1000);
    const AlgorithmEntry &ring = *find_algorithm(Collective::all_gather_v, "ring");
    Machine machine;
    machine.stragglers = {{.rank = 0, .late_seconds = 1}};
    EXPECT_EQ(predict(ring, problem, {}, machine).value(), predict(ring, problem, {}, {}).value());
}

TEST(Predict, ReturnsNothingForAPartlyKnownExchange) {
    ArrayProblem problem = on_arrays(Collective::all_to_all_v, even(1, 2), 8);
    problem.exchange = Exchange::known_to(0, {1, 2}, {1, 2});
    EXPECT_FALSE(predict(*find_algorithm(Collective::all_to_all_v, "staged"), problem, {}, {}));
}

TEST(Predict, PredictsTenThousandRanks) {
    BufferProblem problem = on_buffers(Collective::all_gather_v, even(1250, 8), 10000000);
    const AlgorithmEntry &direct = *find_algorithm(Collective::all_gather_v, "direct");
    const AlgorithmEntry &ring = *find_algorithm(Collective::all_gather_v, "ring");
    EXPECT_LT(*predict(direct, problem, {}, {}), *predict(ring, problem, {}, {}));
}

TEST(Predict, PredictsEveryAlgorithmThatSolvesTheProblem) {
    for (const AlgorithmEntry &entry : algorithms())
        for (const Nodes &nodes : {even(1, 4), even(3, 2), even(1, 100), even(40, 4)}) {
            if (entry.collective == Collective::barrier) continue;
            ArrayProblem arrays = on_arrays(entry.collective, nodes, 400);
            arrays.inlined = {12, 1 << 11};
            for (const AnyProblem &problem :
                 {AnyProblem(on_buffers(entry.collective, nodes, 400)), AnyProblem(arrays)}) {
                if (entry.collective == Collective::all_to_all_v || !entry.solves(problem))
                    continue;
                EXPECT_TRUE(predict(entry, problem, {}, {}))
                    << name_of(entry.collective) << " " << entry.name << ", " << nodes.ranks();
            }
        }
}

// The chunk of a chain does not depend on the number of nodes.
TEST(Predict, PredictsAChainOverManyNodes) {
    const AlgorithmEntry &chain = *find_algorithm(Collective::reduce, "chain");
    const AlgorithmEntry &at_root = *find_algorithm(Collective::reduce, "at_root");
    for (const int nodes : {50, 1250, 4000}) {
        const ArrayProblem problem = on_arrays(Collective::reduce, even(nodes, 8), 1 << 24);
        const auto seconds = predict(chain, problem, {}, {});
        ASSERT_TRUE(seconds) << nodes;
        EXPECT_LT(*seconds, *predict(at_root, problem, {}, {})) << nodes;
    }
}

TEST(Predict, ReturnsNothingIfTheScaledDownProblemHasNoSolution) {
    ArrayProblem problem = on_arrays(Collective::reduce, even(1250, 8), 1 << 20);
    problem.partial.count = 0;
    EXPECT_FALSE(predict(*find_algorithm(Collective::reduce, "chain"), problem, {}, {}));
}

Choice select(const AnyProblem &problem, const ElementBytes &bytes, const Machine &machine,
              std::string_view forced) {
    return select({&problem, 1}, bytes, machine, forced);
}

TEST(Select, ChoosesTheLeastPredictedTime) {
    for (const int ranks : {2, 4, 8, 64}) {
        const auto choose = [&](std::int64_t elements) {
            return select(on_arrays(Collective::all_reduce, even(1, ranks), elements), {}, {}, "");
        };
        EXPECT_EQ(choose(16).algorithm->name, "flat") << ranks;
        EXPECT_EQ(choose(1 << 20).algorithm->name, "two_phase") << ranks;
        EXPECT_EQ(choose(16 << 10).algorithm->name, ranks == 2 ? "flat" : "two_phase") << ranks;
    }
    const Choice choice =
        select(on_buffers(Collective::all_gather_v, even(4, 4), 1000), {}, {}, "");
    EXPECT_EQ(choice.algorithm->name, "direct");
    ASSERT_EQ(choice.candidates.size(), 3u);
    EXPECT_LT(choice.candidates[0].seconds, choice.candidates[1].seconds);
    EXPECT_EQ(choice.why.substr(0, 24), "it is predicted to take ");
    EXPECT_NE(choice.why.find("; ring takes "), std::string::npos) << choice.why;
}

TEST(Select, SaysWhyAFasterCandidateIsNotTaken) {
    int faster = 0, slower = 0;
    for (std::int64_t elements = 1; elements <= 16 << 20; elements *= 2) {
        const Choice choice =
            select(on_buffers(Collective::all_gather_v, even(4, 1), elements), {}, {}, "");
        double chosen = 0, least = std::numeric_limits<double>::infinity();
        for (const Candidate &candidate : choice.candidates) {
            ASSERT_TRUE(candidate.seconds);
            if (candidate.algorithm == choice.algorithm) chosen = *candidate.seconds;
            least = std::min(least, *candidate.seconds);
        }
        const bool says = choice.why.ends_with(
            "; times within a tenth count as equal, and the first of the table is taken");
        EXPECT_EQ(says, least < chosen) << choice.why;
        ++(says ? faster : slower);
    }
    EXPECT_GT(faster, 0);
    EXPECT_GT(slower, 0);
}

TEST(Select, PrintsTimesInTheUnitThatFits) {
    EXPECT_EQ(time_text(26.4e-6), "26.4 us");
    EXPECT_EQ(time_text(999.4e-6), "999 us");
    EXPECT_EQ(time_text(999.6e-6), "1 ms");
    EXPECT_EQ(time_text(2.71e-3), "2.71 ms");
    EXPECT_EQ(time_text(0.9996), "1 s");
    EXPECT_EQ(time_text(12.34), "12.3 s");
}

TEST(Select, ChoosesTheRingIfOneRankOwnsNearlyEverything) {
    for (const int nodes : {4, 8}) {
        BufferProblem problem = on_buffers(Collective::all_gather_v, even(nodes, 1), 4 << 20);
        EXPECT_EQ(select(problem, {}, {}, "").algorithm->name, "direct");
        for (int rank = 1; rank < nodes; ++rank)
            problem.cuts[static_cast<std::size_t>(rank)] = 1000 * rank;
        for (const Machine &machine : {Machine{}, Machine{}.with_tcp()})
            EXPECT_EQ(select(problem, {}, machine, "").algorithm->name, "ring") << nodes;
        problem.cuts.back() = 1000 * nodes;
        EXPECT_EQ(select(problem, {}, {}, "").algorithm->name, "direct");
    }
}

TEST(Select, ChoosesTheFirstOfEquallyFastAlgorithms) {
    Machine nothing;
    nothing.in_cache = nothing.in_memory = {};
    nothing.step_seconds = nothing.flag_seconds = 0;
    const BufferProblem problem = on_buffers(Collective::reduce_scatter_v, even(1, 4), 1000);
    EXPECT_EQ(select(problem, {}, nothing, "").algorithm->name, "direct");
}

TEST(Select, PredictsNothingIfThereIsNoChoice) {
    const Choice one = select(on_buffers(Collective::barrier, even(1, 4), 0), {}, {}, "");
    EXPECT_EQ(one.why, "it is the only one for barrier");
    EXPECT_FALSE(one.candidates.at(0).seconds);
    const BufferProblem problem = on_buffers(Collective::all_gather_v, even(2, 2), 1000);
    const Choice forced = select(problem, {}, {}, "ring");
    EXPECT_EQ(forced.algorithm->name, "ring");
    EXPECT_EQ(forced.why, "the caller asked for it by name");
    EXPECT_FALSE(forced.candidates.at(0).seconds);
}

TEST(Select, ChoosesTheFirstIfRanksWouldPredictDifferently) {
    ArrayProblem problem = on_arrays(Collective::all_to_all_v, even(2, 2), 8);
    problem.exchange = Exchange::known_to(1, {1, 2, 3, 1 << 20}, {5, 6, 7, 8});
    const Choice choice = select(problem, {}, {}, "");
    EXPECT_EQ(choice.algorithm->name, "two_level");
    EXPECT_EQ(choice.why,
              "it is the first for all_to_all_v on arrays, of which no rank knows all counts");
    EXPECT_EQ(select(problem, {}, {}, "staged").algorithm->name, "staged");
}

TEST(Select, ErrorListsThePossibleAlgorithms) {
    try {
        select(on_buffers(Collective::all_gather_v, even(2, 2), 1000), {}, {}, "slab");
        FAIL();
    } catch (const Error &error) {
        EXPECT_STREQ(error.what(),
                     "there is no algorithm \"slab\" for all_gather_v on a buffer of one slab for "
                     "each rank; there is: direct, ring, bruck");
    }
}

TEST(Select, ErrorListsAnAlgorithmOfSeveralVariantsOnce) {
    const AnyProblem problem(on_buffers(Collective::all_gather_v, even(2, 2), 1000));
    try {
        select(std::array{problem, problem}, {}, {}, "slab");
        FAIL();
    } catch (const Error &error) {
        EXPECT_TRUE(std::string(error.what()).ends_with("; there is: direct, ring, bruck"))
            << error.what();
    }
}

}  // namespace
}  // namespace vescomm::internal
