// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares the simulator with times that can be calculated by hand: whole seconds, thousands of
// bytes.
#include "simulate/simulate.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "schedule/algorithms.h"

namespace vescomm::internal {
namespace {

constexpr double tolerance = 1e-9;

// A machine that copies 1,000 elements of 4 bytes in a second, and sends them in a second. Nothing
// else takes time.
Machine plain() {
    Machine machine;
    machine.in_cache = machine.in_memory = {.copy = 8000, .reduce = 8000, .node = 0};
    machine.step_seconds = machine.flag_seconds = machine.switch_seconds = 0;
    machine.put_step_seconds = machine.put_seconds = machine.signal_seconds = 0;
    machine.call_seconds = machine.receive_seconds = 0;
    machine.rail_bytes = 4000;
    return machine;
}

struct Ranks {
    BufferProblem problem;
    std::vector<Schedule> schedules;

    explicit Ranks(const std::vector<int> &sizes) {
        problem.nodes = Nodes::from_sizes(sizes);
        schedules.resize(static_cast<std::size_t>(problem.ranks()));
    }
    Lane &lane(int rank) { return schedules[static_cast<std::size_t>(rank)].lanes.emplace_back(); }
    Simulation run(const Machine &machine) const {
        return simulate(
            problem, [&](int rank) { return schedules[static_cast<std::size_t>(rank)]; }, {},
            machine);
    }
};

Place at(int rank, Region region = Region::buffer) {
    return {rank, region, 0};
}

TEST(Simulate, CopiesAtTheSpeedOfACore) {
    Ranks ranks({1});
    ranks.lane(0).copy(at(0), at(0), 1000);
    const Simulation result = ranks.run(plain());
    EXPECT_NEAR(result.seconds, 1, tolerance);
    EXPECT_NEAR(result.ranks[0].copying, 1, tolerance);
    EXPECT_EQ(result.steps, 1);
}

TEST(Simulate, AReductionReadsAllSourcesAndWritesOneResult) {
    Ranks ranks({3});
    const std::vector<Place> from{at(0), at(1), at(2, Region::partial)};
    ranks.lane(0).reduce(from, at(0), 1000, true);
    EXPECT_NEAR(ranks.run(plain()).ranks[0].reducing, 2, tolerance);
}

TEST(Simulate, PartialSumsMayBeWiderThanElements) {
    Ranks ranks({1});
    const std::vector<Place> from{at(0), at(0, Region::partial)};
    ranks.lane(0).reduce(from, at(0), 1000, true);
    const Simulation result = simulate(
        ranks.problem, [&](int) { return ranks.schedules[0]; }, {.element = 2, .partial = 4},
        plain());
    EXPECT_NEAR(result.seconds, 1, tolerance);
}

TEST(Simulate, AWaitEndsWhenTheFlagIsSeen) {
    Ranks ranks({2});
    ranks.lane(0).copy(at(0), at(0), 1000);
    ranks.schedules[0].lanes[0].signal_node(0, 1);
    Lane &lane = ranks.lane(1);
    lane.wait(0, 0, 1);
    lane.copy(at(0), at(1), 2000);
    Machine machine = plain();
    machine.flag_seconds = 0.25;
    const Simulation result = ranks.run(machine);
    EXPECT_NEAR(result.ranks[0].end, 1, tolerance);
    EXPECT_NEAR(result.ranks[1].waiting, 1.25, tolerance);
    // The first bytes of the copy take flag_seconds, too.
    EXPECT_NEAR(result.ranks[1].end, 3.5, tolerance);
}

TEST(Simulate, EveryStepTakesStepSeconds) {
    Ranks ranks({1});
    Lane &lane = ranks.lane(0);
    lane.acquire();
    lane.signal_node(0, 1);
    lane.wait(0, 0, 1);
    lane.copy(at(0), at(0), 1000);
    Machine machine = plain();
    machine.step_seconds = 0.5;
    machine.flag_seconds = 100;  // a rank sees its own flags at once
    const Simulation result = ranks.run(machine);
    EXPECT_NEAR(result.ranks[0].stepping, 1.5, tolerance);
    EXPECT_NEAR(result.ranks[0].copying, 1.5, tolerance);
    EXPECT_NEAR(result.seconds, 3, tolerance);
}

// 1,000 and 500 elements at half speed; then the rest of the larger one at full speed.
TEST(Simulate, RanksOfANodeShareItsMemory) {
    Ranks ranks({2});
    ranks.lane(0).copy(at(0), at(0), 1000);
    ranks.lane(1).copy(at(1), at(1), 500);
    Machine machine = plain();
    machine.in_cache.node = 8000;
    const Simulation result = ranks.run(machine);
    EXPECT_NEAR(result.ranks[1].end, 1, tolerance);
    EXPECT_NEAR(result.ranks[0].end, 1.5, tolerance);
}

TEST(Simulate, RanksOfANodeShareItsCores) {
    Ranks ranks({4});
    for (int rank = 0; rank < 4; ++rank) ranks.lane(rank).copy(at(rank), at(rank), 1000);
    Machine machine = plain();
    machine.cores = 2;
    for (const RankTimes &times : ranks.run(machine).ranks) EXPECT_NEAR(times.end, 2, tolerance);
}

TEST(Simulate, RanksThatShareACoreSeeFlagsLater) {
    Ranks ranks({4});
    ranks.lane(0).signal_node(0, 1);
    ranks.lane(1).wait(0, 0, 1);
    Machine machine = plain();
    machine.cores = 2;
    machine.flag_seconds = 0.25;
    machine.switch_seconds = 3;
    EXPECT_NEAR(ranks.run(machine).seconds, 3.25, tolerance);
}

TEST(Simulate, SpeedDependsOnWhetherTheVectorFitsTheCache) {
    Ranks ranks({2});
    ranks.lane(0).copy(at(0), at(0), 1000);
    ranks.problem.cuts = {0, 1000, 2000};  // two slabs: 16,000 bytes
    Machine machine = plain();
    machine.in_memory.copy = 4000;
    machine.cache_bytes = 16000;
    EXPECT_NEAR(ranks.run(machine).seconds, 1, tolerance);
    machine.cache_bytes = 8000;
    EXPECT_NEAR(ranks.run(machine).seconds, 2, tolerance);
    machine.cache_bytes = 16000 / 1.5;
    EXPECT_NEAR(ranks.run(machine).seconds, 1.5, tolerance);
    machine.cache_bytes = 8000;
    ranks.problem.per_node = true;  // one slab: 8,000 bytes
    EXPECT_NEAR(ranks.run(machine).seconds, 1, tolerance);
}

TEST(Simulate, APutArrivesAfterItsLatencyAndItsBytes) {
    Ranks ranks({1, 1});
    ranks.lane(0).put(at(0), at(1), 1000, 0, 1);
    ranks.lane(1).wait(0, 0, 1);
    Machine machine = plain();
    machine.put_step_seconds = 0.5;
    machine.put_seconds = 10;
    const Simulation result = ranks.run(machine);
    EXPECT_NEAR(result.ranks[0].end, 1.5, tolerance);
    EXPECT_NEAR(result.ranks[0].sending, 1.5, tolerance);
    EXPECT_NEAR(result.ranks[1].end, 11.5, tolerance);
}

TEST(Simulate, ARankContinuesWhenAPutIsHandedOver) {
    Ranks ranks({1, 1});
    Lane &lane = ranks.lane(0);
    lane.put(at(0), at(1), 1000, 0, 1);
    lane.copy(at(0), at(0), 3000);
    Machine machine = plain();
    machine.put_core_bytes = 8000;  // half a second of the core
    const Simulation result = ranks.run(machine);
    EXPECT_NEAR(result.ranks[0].sending, 0.5, tolerance);
    EXPECT_NEAR(result.ranks[0].end, 3.5, tolerance);
}

TEST(Simulate, PutsQueueForTheRailsOfBothEnds) {
    Ranks ranks({2, 1, 1});
    ranks.lane(0).put(at(0), at(2), 1000, 0, 1);
    ranks.lane(1).put(at(1), at(3), 1000, 0, 1);
    ranks.lane(2).wait(0, 0, 1);
    ranks.lane(3).wait(1, 0, 1);
    Machine machine = plain();
    EXPECT_NEAR(ranks.run(machine).seconds, 1, tolerance);  // a rail for each rank
    machine.rails = 1;
    const Simulation result = ranks.run(machine);
    EXPECT_NEAR(result.ranks[2].end, 1, tolerance);
    EXPECT_NEAR(result.ranks[3].end, 2, tolerance);

    Ranks incast({1, 1, 1});
    incast.lane(1).put(at(1), at(0), 1000, 0, 1);
    incast.lane(2).put(at(2), at(0), 1000, 0, 1);
    incast.lane(0).wait(2, 0, 1);
    EXPECT_NEAR(incast.run(plain()).seconds, 2, tolerance);
}

TEST(Simulate, ARankSendsAtMostRankBytes) {
    Ranks ranks({1, 1});
    ranks.lane(0).put(at(0), at(1), 1000, 0, 1);
    ranks.lane(1).wait(0, 0, 1);
    Machine machine = plain();
    machine.rank_bytes = 1000;
    EXPECT_NEAR(ranks.run(machine).seconds, 4, tolerance);
}

// Two nodes of a switch each send for one second of their rails to another switch; the links of the
// switch carry half the rate of one rail.
TEST(Simulate, OversubscribedSwitchesLimitTheirNodes) {
    Ranks ranks({1, 1, 1, 1});
    for (const int rank : {0, 1}) {
        ranks.lane(rank).put(at(rank), at(rank + 2), 1000, 0, 1);
        ranks.lane(rank + 2).wait(rank, 0, 1);
    }
    Machine machine = plain();
    machine.nodes_per_switch = 2;
    machine.oversubscription = 4;
    EXPECT_NEAR(ranks.run(machine).seconds, 4, tolerance);
    machine.nodes_per_switch = 4;
    EXPECT_NEAR(ranks.run(machine).seconds, 1, tolerance);
}

TEST(Simulate, ASignalOvertakesQueuedPuts) {
    Ranks ranks({1, 1});
    Lane &lane = ranks.lane(0);
    lane.put(at(0), at(1), 1000, 0, 1);
    lane.signal(1, 1, 1);
    ranks.lane(1).wait(0, 1, 1);
    Machine machine = plain();
    machine.signal_seconds = 0.25;
    EXPECT_NEAR(ranks.run(machine).ranks[1].end, 0.25, tolerance);
}

TEST(Simulate, ReceivingTakesCoreTime) {
    Ranks ranks({1, 1});
    ranks.lane(0).put(at(0), at(1), 1000, 0, 1);
    ranks.lane(1).wait(0, 0, 1);
    Machine machine = plain();
    machine.receive_seconds = 0.5;
    machine.receive_core_bytes = 8000;
    const Simulation result = ranks.run(machine);
    EXPECT_NEAR(result.ranks[1].receiving, 1, tolerance);
    EXPECT_NEAR(result.ranks[1].end, 2, tolerance);  // after one second in the network
}

TEST(Simulate, ARankReceivesBetweenItsSteps) {
    Ranks ranks({1, 1});
    ranks.lane(0).put(at(0), at(1), 1000, 0, 1);
    ranks.lane(1).copy(at(1), at(1), 3000);
    ranks.lane(1).wait(0, 0, 1);
    Machine machine = plain();
    machine.receive_seconds = 0.5;
    EXPECT_NEAR(ranks.run(machine).ranks[1].end, 3.5, tolerance);
}

// 512,000 bytes in 7 chunks; each takes a seventh of a second at either end.
TEST(Simulate, CopiedPutsTravelInChunks) {
    Ranks ranks({1, 1});
    ranks.lane(0).put(at(0), at(1), 128000, 0, 1);
    ranks.lane(1).wait(0, 0, 1);
    Machine machine = plain();
    machine.rail_bytes = 0;
    machine.put_core_bytes = machine.receive_core_bytes = 512000;
    EXPECT_NEAR(ranks.run(machine).seconds, 1 + 1 / 7.0, tolerance);
    machine.cores = 1;
    machine.nodes_per_host = 2;  // one core for both ends
    EXPECT_NEAR(ranks.run(machine).seconds, 2, tolerance);
}

TEST(Simulate, NodesOfAHostShareItsCores) {
    Ranks ranks({1, 1, 1, 1});
    for (int rank = 0; rank < 4; ++rank) ranks.lane(rank).copy(at(rank), at(rank), 1000);
    Machine machine = plain();
    machine.cores = 1;
    EXPECT_NEAR(ranks.run(machine).seconds, 1, tolerance);
    machine.nodes_per_host = 2;
    EXPECT_NEAR(ranks.run(machine).seconds, 2, tolerance);
}

TEST(Simulate, AnEagerPutWaitsAtItsReceiver) {
    Ranks ranks({1, 1});
    ranks.lane(0).wait(1, 1, 1, true);
    ranks.schedules[0].lanes[0].put(at(0), at(1), 1000, 0, 1);
    ranks.lane(1).copy(at(1), at(1), 3000);
    ranks.schedules[1].lanes[0].signal(0, 1, 1, true);
    ranks.lane(1).wait(0, 0, 1);
    Machine machine = plain();
    machine.signal_seconds = 100;
    EXPECT_NEAR(ranks.run(machine).seconds, 3, tolerance);  // unexpected for two seconds
    ranks.schedules[1].lanes[0] = {};
    ranks.schedules[1].lanes[0].signal(0, 1, 1, true);
    EXPECT_NEAR(ranks.run(machine).seconds, 1, tolerance);
}

TEST(Simulate, LanesWaitSideBySide) {
    Ranks ranks({3});
    for (const int rank : {1, 2}) {
        Lane &lane = ranks.lane(rank);
        lane.copy(at(rank), at(rank), rank == 1 ? 2000 : 1000);
        lane.signal_node(0, 1);
    }
    for (const int rank : {1, 2}) {
        Lane &lane = ranks.lane(0);
        lane.wait(rank, 0, 1);
        lane.copy(at(rank), at(0), 1000);
    }
    EXPECT_NEAR(ranks.run(plain()).seconds, 3, tolerance);
}

// As in the executor: the put is handed over after the next step of many bytes, not at the end of
// the first lane.
TEST(Simulate, OtherLanesContinueAfterALongStep) {
    for (const auto &[elements, end] : {std::pair{40'000, 81.0}, std::pair{10'000, 31.0}}) {
        Ranks ranks({1, 1});
        Lane &copies = ranks.lane(0);
        copies.copy(at(0), at(0), elements);
        copies.signal_node(0, 1);
        copies.copy(at(0), at(0), elements);
        copies.copy(at(0), at(0), elements);
        Lane &puts = ranks.lane(0);
        puts.wait(0, 0, 1);
        puts.put(at(0), at(1), 1000, 1, 1);
        ranks.lane(1).wait(0, 1, 1);
        EXPECT_NEAR(ranks.run(plain()).ranks[1].end, end, tolerance) << elements;
    }
}

TEST(Simulate, StragglersComeLateAndAreSlow) {
    Ranks ranks({2});
    for (int rank = 0; rank < 2; ++rank) {
        Lane &lane = ranks.lane(rank);
        lane.copy(at(rank), at(rank), 1000);
        lane.signal_node(0, 1);
        lane.wait(1 - rank, 0, 1);
    }
    Machine machine = plain();
    machine.stragglers = {{.rank = 1, .late_seconds = 0.5, .slower = 3}};
    const Simulation result = ranks.run(machine);
    EXPECT_NEAR(result.ranks[1].copying, 3, tolerance);
    EXPECT_NEAR(result.ranks[1].end, 3.5, tolerance);
    EXPECT_NEAR(result.ranks[0].end, 3.5, tolerance);
    EXPECT_NEAR(result.ranks[0].waiting, 2.5, tolerance);
}

TEST(Simulate, ErrorNamesARankThatWaitsForEver) {
    Ranks ranks({2});
    ranks.lane(0).signal_node(0, 1);
    ranks.lane(1).wait(0, 0, 2);
    try {
        ranks.run(plain());
        FAIL();
    } catch (const Error &error) {
        EXPECT_STREQ(error.what(), "rank 1 waits for ever in lane 0, with 1 steps to go");
    }
}

// A collective with 1,000 elements for each rank.
BufferProblem problem_of(Collective collective, const std::vector<int> &sizes) {
    BufferProblem problem;
    problem.collective = collective;
    problem.nodes = Nodes::from_sizes(sizes);
    if (collective != Collective::barrier)
        for (int rank = 0; rank <= problem.ranks(); ++rank) problem.cuts.push_back(1000 * rank);
    return problem;
}

Simulation run(const AnyProblem &problem, std::string_view name, const Machine &machine) {
    const AlgorithmEntry *entry = find_algorithm(problem->collective, name);
    return simulate(
        problem, [&](int rank) { return entry->make(problem, rank); }, {}, machine);
}

TEST(SimulateAlgorithms, DirectCopiesTheShardsOfAllOtherRanks) {
    Machine machine = plain();
    machine.flag_seconds = 0.25;
    // A flag, 3 shards whose first bytes take flag_seconds each, a flag.
    EXPECT_NEAR(run(problem_of(Collective::all_gather_v, {4}), "direct", machine).seconds, 4.25,
                tolerance);
}

// Shards arrive one after another on the rail, and each is copied while later ones arrive.
TEST(SimulateAlgorithms, DirectCopiesShardsInTheOrderOfTheirArrival) {
    for (const std::vector<int> &sizes :
         {std::vector<int>(8, 2), std::vector<int>{2, 3, 2, 1, 3}}) {
        const int nodes = static_cast<int>(sizes.size());
        BufferProblem problem = problem_of(Collective::all_gather_v, sizes);
        for (std::int64_t &cut : problem.cuts) cut *= 100;  // too large for eager puts
        Machine machine = plain();
        const double arrivals = run(problem, "direct", machine).seconds;
        machine.in_cache.copy = machine.in_memory.copy = 8e9;
        const double without_copies = run(problem, "direct", machine).seconds;
        // A copy of a shard takes as long as its arrival on the rail. The first is that of the own
        // shard, before the puts.
        if (nodes == 8) {
            EXPECT_NEAR(without_copies, 700, 1);
            EXPECT_NEAR(arrivals, 900, 1);
        }
        EXPECT_LT(arrivals, 1.5 * without_copies);
    }
}

TEST(SimulateAlgorithms, ARingHasAStepForEveryOtherRank) {
    Machine machine = plain();
    machine.flag_seconds = 0.25;
    // In every step a flag and a shard; at the end the flag that the shard has been read.
    EXPECT_NEAR(run(problem_of(Collective::all_gather_v, {4}), "ring", machine).seconds, 4.75,
                tolerance);
}

// Rank 0 has a hundred chunks, the other ranks have none.
TEST(SimulateAlgorithms, ARingForwardsChunkByChunk) {
    constexpr int chunk = 32'544, chunks = 100;
    for (const int ranks : {2, 3, 8}) {
        BufferProblem problem = problem_of(Collective::all_gather_v,
                                           std::vector<int>(static_cast<std::size_t>(ranks), 1));
        for (std::int64_t &cut : problem.cuts) cut = cut > 0 ? chunk * chunks : 0;
        Machine machine = plain();
        EXPECT_NEAR(run(problem, "ring", machine).seconds, (chunks + ranks - 2) * chunk / 1e3,
                    1e-6);
        // If cores copy, ranks in between receive one chunk and hand over another.
        machine.rail_bytes = 0;
        machine.put_core_bytes = machine.receive_core_bytes = 4000;
        const double seconds = run(problem, "ring", machine).seconds;
        EXPECT_LT(seconds, (ranks == 2 ? 1.1 : 2.2) * chunks * chunk / 1e3) << ranks;
    }
}

TEST(SimulateAlgorithms, ASlabSendsEachShardOnceToEachOtherNode) {
    BufferProblem problem = problem_of(Collective::all_gather_v, {2, 2, 2});
    problem.per_node = true;
    Machine machine = plain();
    machine.signal_seconds = 0.5;
    machine.put_seconds = 0.25;
    // Two shards in a row, and the latency of the last. The puts are eager.
    EXPECT_NEAR(run(problem, "slab", machine).seconds, 2 + 0.25, tolerance);
    machine.rails = 1;
    EXPECT_NEAR(run(problem, "slab", machine).seconds, 4 + 0.25, tolerance);
    for (std::int64_t &cut : problem.cuts) cut *= 100;  // too large for eager puts
    EXPECT_NEAR(run(problem, "slab", machine).seconds, 0.5 + 400 + 0.25, tolerance);
}

TEST(SimulateAlgorithms, ATreeSendsTheWholeOnceForEveryDoublingOfNodes) {
    const std::vector<int> sizes{1, 1, 1, 1, 1, 1, 1, 1};
    // The root's three puts queue on its rail; the put to the deepest subtree is the first.
    EXPECT_NEAR(run(problem_of(Collective::broadcast, sizes), "tree", plain()).seconds, 24,
                tolerance);
}

TEST(SimulateAlgorithms, ABarrierHasAPhaseForEveryDoublingOfNodes) {
    Machine machine = plain();
    machine.signal_seconds = 1;
    for (const int phases : {1, 2, 3, 6, 10}) {
        const std::vector<int> sizes(std::size_t{1} << phases, 1);
        EXPECT_NEAR(run(problem_of(Collective::barrier, sizes), "dissemination", machine).seconds,
                    phases, tolerance);
    }
}

AnyProblem problem_for(const AlgorithmEntry &entry, const std::vector<int> &sizes, bool arrays) {
    BufferProblem in_buffers = problem_of(entry.collective, sizes);
    in_buffers.per_node = entry.name == "slab";
    if (!arrays) return in_buffers;
    ArrayProblem problem(in_buffers);
    problem.staging = {0, 400};
    problem.partial = {0, 400};
    const auto ranks = static_cast<std::size_t>(problem.ranks());
    if (entry.collective == Collective::all_to_all_v)
        problem.exchange =
            Exchange::whole(problem.ranks(), std::vector<std::int64_t>(ranks * ranks, 9));
    return problem;
}

TEST(SimulateAlgorithms, TimesOfEveryAlgorithmAddUp) {
    for (const AlgorithmEntry &entry : algorithms()) {
        for (const std::vector<int> &sizes :
             {std::vector<int>{1}, {5}, {1, 1, 1}, {4, 4}, {3, 1, 2}}) {
            for (const bool arrays : {false, true}) {
                const AnyProblem problem = problem_for(entry, sizes, arrays);
                if (!entry.solves(problem)) continue;
                SCOPED_TRACE(testing::Message() << name_of(entry.collective) << " " << entry.name);
                Machine machine;
                machine.cores = 3;
                machine.in_cache.node = 200e9;
                const Simulation result = run(problem, entry.name, machine);
                double last = 0;
                for (const RankTimes &times : result.ranks) {
                    EXPECT_NEAR(times.end,
                                times.copying + times.reducing + times.sending + times.receiving +
                                    times.stepping + times.waiting,
                                1e-12);
                    last = std::max(last, times.end);
                }
                EXPECT_EQ(result.seconds, last);
                EXPECT_EQ(run(problem, entry.name, machine).seconds, result.seconds);
            }
        }
    }
}

}  // namespace
}  // namespace vescomm::internal
