// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Measures the time to make the schedule of one rank in a large job, for each algorithm; with
// --simulate, the time to simulate the schedules of all ranks.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "schedule/algorithms.h"
#include "simulate/simulate.h"

namespace vescomm::internal {
namespace {

struct Options {
    int nodes = 1250;
    int size = 8;
    std::int64_t elements = 100;  // of a rank
    std::string collective, algorithm;
    bool simulate = false;
};

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// The part that is common to buffers and arrays.
Problem common_of(Collective collective, const Options &options) {
    Problem problem;
    problem.collective = collective;
    problem.nodes =
        Nodes::from_sizes(std::vector<int>(static_cast<std::size_t>(options.nodes), options.size));
    if (collective != Collective::barrier && collective != Collective::all_to_all_v)
        for (int at = 0; at <= problem.ranks(); ++at) problem.cuts.push_back(options.elements * at);
    return problem;
}

AnyProblem problem_of(const AlgorithmEntry &entry, bool arrays, const Options &options, int rank) {
    if (!arrays) {
        BufferProblem problem(common_of(entry.collective, options));
        problem.per_node = entry.name == "slab";
        return problem;
    }
    ArrayProblem problem(common_of(entry.collective, options));
    const SlotBytes sizes = slot_bytes(problem.nodes);
    problem.staging = {0, sizes.staging / 4};
    problem.partial = {0, sizes.partial / 4};
    if (entry.collective == Collective::all_to_all_v) {
        const std::vector<std::int64_t> counts(static_cast<std::size_t>(problem.ranks()),
                                               options.elements);
        problem.exchange = Exchange::known_to(rank, counts, counts);
    }
    return problem;
}

void make_one(const AlgorithmEntry &entry, const AnyProblem &problem, int rank) {
    constexpr int times = 9;
    std::vector<double> seconds;
    std::size_t steps = 0;
    for (int i = 0; i < times; ++i) {
        const double begin = now();
        const Schedule schedule = entry.make(problem, rank);
        seconds.push_back(now() - begin);
        steps = 0;
        for (const Lane &lane : schedule.lanes) steps += lane.steps().size();
    }
    std::ranges::sort(seconds);
    std::printf("%10zu steps made in %10.1f us\n", steps, seconds[times / 2] * 1e6);
}

void simulate_all(const AlgorithmEntry &entry, const AnyProblem &problem) {
    const double begin = now();
    const Simulation run =
        simulate(problem, [&](int rank) { return entry.make(problem, rank); }, {}, {});
    const double seconds = now() - begin;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::printf(
        "%12lld steps of all ranks in %8.2f s, %4.0f ns each, at most %ld MiB so far; "
        "they take %.1f us\n",
        static_cast<long long>(run.steps), seconds, seconds / static_cast<double>(run.steps) * 1e9,
        usage.ru_maxrss / 1024, run.seconds * 1e6);
}

void measure(const Options &options) {
    const int rank = options.nodes * options.size / 2 + 1;
    for (const AlgorithmEntry &entry : algorithms()) {
        if (!options.collective.empty() && name_of(entry.collective) != options.collective)
            continue;
        if (!options.algorithm.empty() && entry.name != options.algorithm) continue;
        for (const bool arrays : {false, true}) {
            const AnyProblem problem = problem_of(entry, arrays, options, rank);
            const bool unknown = options.simulate && entry.collective == Collective::all_to_all_v;
            if (!entry.suits(problem) || unknown) continue;
            std::printf("%-16s %-13s %s ", std::string(name_of(entry.collective)).c_str(),
                        std::string(entry.name).c_str(), arrays ? "arrays" : "buffer");
            if (options.simulate) simulate_all(entry, problem);
            else make_one(entry, problem, rank);
            std::fflush(stdout);
        }
    }
}

}  // namespace
}  // namespace vescomm::internal

int main(int argc, char **argv) {
    CLI::App app("Measures the time to make and to simulate the schedules of large jobs.");
    vescomm::internal::Options options;
    app.add_option("--nodes", options.nodes)->check(CLI::PositiveNumber);
    app.add_option("--size", options.size, "ranks of a node")->check(CLI::PositiveNumber);
    app.add_option("--elements", options.elements, "f32 of a rank")->check(CLI::PositiveNumber);
    app.add_option("--collective", options.collective, "only this collective");
    app.add_option("--algorithm", options.algorithm, "only algorithms of this name");
    app.add_flag("--simulate", options.simulate, "make and simulate the schedules of all ranks");
    CLI11_PARSE(app, argc, argv);
    vescomm::internal::measure(options);
    return 0;
}
