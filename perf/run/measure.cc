// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up; the time is spent in the teams.
#include "perf/run/measure.h"

#include <algorithm>
#include <cmath>

#include "perf/run/exit_codes.h"

namespace vescomm::perf {
namespace {

// Default duration of the timed iterations of one team at one size, in all rounds together, and
// their limit, which keeps the cost of sorting times low.
constexpr double seconds_of_case = 0.25;
constexpr int max_iterations = 5000;
// Default duration of the untimed iterations at the start of each turn, which fill caches and wake
// cores, and their limit.
constexpr double warm_up_seconds = 0.01;
constexpr int max_warm_up = 50;

class Turns {
public:
    Turns(const Case &what, Team &team, const Options &options)
        : what_(what), team_(team), options_(options) {
        samples_.implementation = team.name();
    }

    const Samples &samples() const { return samples_; }
    bool takes_part() const { return samples_.unsupported.empty(); }

    void prepare() {
        const std::vector<Answer> answers = ask("prepare", {});
        for (const Answer &answer : answers) {
            if (!answer.unsupported.empty()) samples_.unsupported = answer.unsupported;
            // All ranks wait for the slowest one.
            samples_.costs.register_us =
                std::max(samples_.costs.register_us, answer.costs.register_us);
            samples_.costs.create_us = std::max(samples_.costs.create_us, answer.costs.create_us);
            samples_.costs.algorithm = answer.costs.algorithm;
            samples_.costs.predicted_us = answer.costs.predicted_us;
        }
        if (takes_part()) plan();
    }

    void take() {
        std::vector<double> times = run(warm_up_, iterations_).times;
        if (options_.check) verify();
        times.erase(times.begin(), times.begin() + options_.skip);
        if (options_.overlap) overlap(median(times));
        samples_.rounds_us.push_back(std::move(times));
    }

    void end() { ask("end", {}); }

    void fail(const std::string &why) {
        samples_.unsupported = "it failed: " + why;
        samples_.failed = true;
        samples_.rounds_us.clear();
        samples_.wrong = -1;
    }

private:
    std::vector<Answer> ask(const std::string &name, const Turn &turn) {
        return team_.ask({.name = name, .what = what_, .turn = turn});
    }

    // Chooses the number of iterations from the time of one iteration after a warm-up.
    void plan() {
        warm_up_ = options_.warm_up;
        iterations_ = (options_.iterations + options_.rounds - 1) / options_.rounds;
        const std::vector<double> tried = run(1, 1).times;
        // Writing the input of an iteration takes about as long as the iteration.
        const double seconds = 2e-6 * (tried.front() + options_.skew_us) * options_.operations;
        const auto fit = [&](double budget, int max) {
            return static_cast<int>(
                std::clamp(budget / std::max(seconds, 1e-9), 1.0, static_cast<double>(max)));
        };
        if (options_.iterations == 0)
            iterations_ = fit(seconds_of_case / options_.rounds,
                              std::max(1, max_iterations / options_.rounds));
        if (options_.warm_up < 0) warm_up_ = fit(warm_up_seconds, max_warm_up);
        iterations_ += options_.skip;
    }

    // Times of each iteration, and of the computation without the operation.
    struct Times {
        std::vector<double> times, compute;
    };

    Times run(int warm_up, int iterations, double compute_us = 0) {
        Turn turn;
        turn.compute_us = compute_us;
        turn.warm_up = warm_up;
        turn.iterations = iterations;
        turn.operations = options_.operations;
        turn.round = round_;
        turn.keep_source = options_.keep_sources;
        turn.skew_us = options_.skew_us;
        turn.late_rank = options_.late_rank < 0 ? what_.ranks() - 1 : options_.late_rank;
        round_ += static_cast<std::uint64_t>(warm_up + iterations);
        const std::vector<Answer> answers = ask("run", turn);
        const auto gather = [&](const std::vector<double> Answer::*times) {
            std::vector<double> all;
            for (std::size_t i = 0; i < (answers.front().*times).size(); ++i) {
                std::vector<double> ranks;
                ranks.reserve(answers.size());
                for (const Answer &answer : answers) ranks.push_back((answer.*times)[i]);
                all.push_back(combine(options_.average, ranks));
            }
            return all;
        };
        for (const Answer &answer : answers)
            samples_.start_us = std::max(samples_.start_us, answer.start_us);
        return {gather(&Answer::times_us), gather(&Answer::compute_us)};
    }

    // Measures with computation as long as the operation. If the operation is hidden completely,
    // both together take as long as the computation.
    void overlap(double operation_us) {
        const double min_us = 0.1;
        const Times both = run(warm_up_, iterations_, std::max(operation_us, min_us));
        if (options_.check) verify();
        samples_.overlaps.push_back({.operation_us = operation_us,
                                     .compute_us = median(both.compute),
                                     .total_us = median(both.times)});
    }

    void verify() {
        samples_.wrong = std::max<std::int64_t>(samples_.wrong, 0);
        for (const Answer &answer : ask("verify", {})) {
            if (answer.verdict.wrong > 0 && samples_.first_wrong.empty())
                samples_.first_wrong =
                    "rank " + std::to_string(answer.rank) + ": " + answer.verdict.first;
            samples_.wrong += answer.verdict.wrong;
        }
    }

    Case what_;
    Team &team_;
    const Options &options_;
    Samples samples_;
    std::uint64_t round_ = 1;
    int warm_up_ = 0;
    int iterations_ = 1;
};

}  // namespace

std::vector<Samples> measure(const Case &what, std::vector<std::unique_ptr<Team>> &teams,
                             const Options &options, const Watch &watch) {
    std::vector<Turns> all;
    all.reserve(teams.size());
    for (const std::unique_ptr<Team> &team : teams) all.emplace_back(what, *team, options);
    const auto act = [&](Turns &turns, auto &&step) {
        if (!turns.takes_part()) return;
        try {
            step(turns);
        } catch (const Failure &failure) {
            if (&turns == &all.front() || failure.code == ExitCode::interrupted) throw;
            turns.fail(failure.what());
        }
    };
    for (Turns &turns : all) act(turns, [](Turns &t) { t.prepare(); });
    for (int round = 0; round < options.rounds; ++round) {
        for (std::size_t i = 0; i < all.size(); ++i) {
            Turns &turns = all[(i + static_cast<std::size_t>(round)) % all.size()];
            act(turns, [&](Turns &t) {
                watch(t.samples().implementation, round + 1);
                t.take();
            });
        }
    }
    for (Turns &turns : all) act(turns, [](Turns &t) { t.end(); });

    std::vector<Samples> results;
    results.reserve(all.size());
    for (const Turns &turns : all) results.push_back(turns.samples());
    for (Samples &samples : results)
        if (samples.unsupported.empty() && results.front().unsupported.empty())
            samples.ratio = ratio_of(samples, results.front());
    std::vector<std::unique_ptr<Team>> left;
    for (std::size_t i = 0; i < all.size(); ++i)
        if (!results[i].failed) left.push_back(std::move(teams[i]));
    teams = std::move(left);
    return results;
}

}  // namespace vescomm::perf
