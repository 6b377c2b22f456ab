// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "tools/fit_machine.h"

#include <gtest/gtest.h>

#include <functional>

#include "simulate/simulate.h"

namespace vescomm::internal {
namespace {

// Simulated seconds of one lane on each of two nodes.
double simulated(const Machine &machine, const std::function<void(int rank, Lane &)> &script) {
    BufferProblem problem;
    problem.nodes = Nodes::from_sizes(std::vector{1, 1});
    return simulate(
               problem,
               [&](int rank) {
                   Schedule schedule;
                   script(rank, schedule.lanes.emplace_back());
                   return schedule;
               },
               {}, machine)
        .seconds;
}

// The times that measure.cc would measure on the links of a machine.
MeasuredTimes measured_on(const Machine &machine) {
    const auto puts = [&](std::uint32_t count, std::int64_t bytes, bool both) {
        return simulated(machine, [&](int rank, Lane &lane) {
            const int peer = 1 - rank;
            if (rank == 0 || both)
                for (std::uint32_t i = 1; i <= count; ++i)
                    lane.put({rank, Region::buffer, 0}, {peer, Region::buffer, 0}, bytes / 4, 0, i);
            if (rank == 1 || both) lane.wait(peer, 0, count);
            lane.signal(peer, 1, 1);
            lane.wait(peer, 1, 1);
        });
    };
    const auto round_trips = [&](std::uint32_t count) {
        return simulated(machine, [&](int rank, Lane &lane) {
            for (std::uint32_t i = 1; i <= count; ++i) {
                if (rank == 0) lane.signal(1, 0, i);
                lane.wait(1 - rank, 0, i);
                if (rank == 1) lane.signal(0, 0, i);
            }
        });
    };
    MeasuredTimes times;
    times.has_links = true;
    times.signal = (round_trips(51) - round_trips(1)) / 100;
    times.small_one_way = (puts(201, 64, false) - puts(1, 64, false)) / 200;
    times.small_both_ways = (puts(201, 64, true) - puts(1, 64, true)) / 200;
    times.large_bytes = 4 << 20;
    times.large_one_way = puts(1, 4 << 20, false) - puts(1, 64, false);
    times.large_both_ways = puts(1, 4 << 20, true) - puts(1, 64, true);
    return times;
}

TEST(FitMachine, FindsCoreSpeedsThatLimitTcp) {
    Machine machine = Machine{}.with_tcp();
    machine.step_seconds = 0;
    machine.rail_bytes = 0;
    machine.put_core_bytes = 5e9;
    machine.receive_core_bytes = 9e9;
    const Machine fitted = fit_machine(measured_on(machine), true, Machine{}.with_tcp());
    EXPECT_NEAR(fitted.put_step_seconds / machine.put_step_seconds, 1, 0.1);
    EXPECT_NEAR(fitted.receive_seconds / machine.receive_seconds, 1, 0.1);
    EXPECT_NEAR(fitted.signal_seconds / machine.signal_seconds, 1, 0.1);
    EXPECT_NEAR(fitted.put_core_bytes / machine.put_core_bytes, 1, 0.1);
    EXPECT_NEAR(fitted.receive_core_bytes / machine.receive_core_bytes, 1, 0.1);
    EXPECT_EQ(fitted.rail_bytes, Machine{}.with_tcp().rail_bytes) << "it was not measured";
}

TEST(FitMachine, KeepsFieldsOfDisturbedMeasurements) {
    MeasuredTimes times = measured_on(Machine{});
    for (auto *all : {&times.copies, &times.reductions})
        for (auto &each : *all) each.alone = each.together = -1e-9;
    times.large_one_way = times.large_both_ways = 0;
    const Machine fitted = fit_machine(times, true, Machine{}.with_tcp());
    EXPECT_EQ(fitted.in_cache, Machine{}.in_cache);
    EXPECT_EQ(fitted.in_memory.copy, Machine{}.in_memory.copy);
    EXPECT_EQ(fitted.cache_bytes, Machine{}.cache_bytes);
    EXPECT_GT(fitted.put_core_bytes, 0);
    EXPECT_GT(fitted.rail_bytes, 0);
}

TEST(FitMachine, FindsTheRateOfALimitingLink) {
    for (const bool tcp : {false, true}) {
        Machine machine = tcp ? Machine{}.with_tcp() : Machine{};
        machine.rail_bytes = 1e9;
        const Machine fitted =
            fit_machine(measured_on(machine), tcp, tcp ? Machine{}.with_tcp() : Machine{});
        EXPECT_NEAR(fitted.rail_bytes / machine.rail_bytes, 1, 0.1);
        EXPECT_EQ(fitted.put_core_bytes > 0, tcp);
    }
}

TEST(FitMachine, NeverGivesNegativeTimes) {
    MeasuredTimes times;
    times.has_links = true;
    times.signal = 1e-6;
    times.small_one_way = 3e-6;
    times.small_both_ways = 2e-6;
    times.large_bytes = 1 << 20;
    times.large_one_way = 2e-4;
    times.large_both_ways = 1e-4;
    for (const bool one_host : {false, true}) {
        times.one_host = one_host;
        const Machine fitted = fit_machine(times, true, {});
        EXPECT_GE(fitted.receive_seconds, 0);
        EXPECT_GE(fitted.signal_seconds, 0);
        EXPECT_GE(fitted.put_core_bytes, 0);
        EXPECT_GT(fitted.receive_core_bytes, 0);
        const MachineFile file{
            .processor = "X", .cores = 1, .links = MachineFile::Links::tcp, .machine = fitted};
        EXPECT_NO_THROW(parse_machine_file(to_text(file), "the file"));
    }
}

TEST(FitMachine, FindsTheCacheSize) {
    MeasuredTimes times;
    times.ranks = 2;
    for (double size = 1 << 20; size <= 256 << 20; size *= 2) {
        const double each = size <= 16 << 20 ? 1e-11 : 4e-11;
        times.copies.push_back(
            {.footprint = size, .bytes = size, .alone = size * each, .together = size * each});
    }
    const Machine fitted = fit_machine(times, true, {});
    EXPECT_GE(fitted.cache_bytes, 11 << 20);
    EXPECT_LE(fitted.cache_bytes, 23 << 20);
    EXPECT_NEAR(fitted.in_cache.copy, 100e9, 1);
    EXPECT_NEAR(fitted.in_memory.copy, 25e9, 1);
    EXPECT_EQ(fitted.in_memory.node, 0);
    times.copies.back().together *= 2;
    EXPECT_NEAR(fit_machine(times, true, {}).in_memory.node, 25e9, 1);
}

TEST(FitMachine, KeepsFieldsThatWereNotMeasured) {
    Machine machine;
    machine.flag_seconds = 3e-7;
    machine.put_seconds = 4e-6;
    EXPECT_EQ(fit_machine({}, true, machine), machine);
}

}  // namespace
}  // namespace vescomm::internal
