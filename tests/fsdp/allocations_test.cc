// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes allocation number n of one rank fail in vescomm_fsdp_create() and vescomm_fsdp_reset():
//
//     fsdp_allocations_test [--all] [--only PRESET/PHASE] [--from N]
//
// Each trial is a process of its own, and its ranks are threads. The test requires:
// - If the call fails on one rank, it fails on all of them, and none waits until its deadline.
// - The call can be repeated and succeeds, unless the communicator of the program is broken.
// - The process is not terminated.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/failing_allocations.h"
#include "support/free_port.h"
#include "support/sweep_options.h"
#include "vescomm/fsdp.hpp"

namespace vescomm::fsdp {
namespace {

using internal::testing_support::Allocations;
using internal::testing_support::Failing;
using internal::testing_support::make_shared_between_processes;
using internal::testing_support::SweepOptions;

constexpr int max_ranks = 4;
constexpr double timeout_seconds = 20;  // of the communicators
constexpr unsigned hang_seconds = 120;  // the test kills a trial after this time

struct Sweep {
    const char *preset;
    const char *phase;
    int ranks;
    int victim;

    std::string name() const { return std::string(preset) + "/" + phase; }
};

constexpr Sweep sweeps[] = {
    {"zero3", "create", 2, 0}, {"zero3", "reset", 2, 1},  {"hsdp:2", "create", 4, 3},
    {"hsdp:2", "reset", 4, 0}, {"hpz:2", "create", 4, 1}, {"hpz:2", "reset", 4, 2},
};

// The result of a trial, in memory that the trial's process shares with the test.
struct Found {
    Allocations allocations;  // of the victim
    std::array<vescomm_status_t, max_ranks> first;  // status of the call in which allocations fail
    std::array<vescomm_status_t, max_ranks> second;  // status of the same call without failures
    std::array<bool, max_ranks> broken;  // the communicator of the program is
    char what[max_ranks][512];  // sentence of the call in which allocations fail
};

// Small, so that most allocations are those of every engine.
Spec describe(const Sweep &sweep) {
    vescomm_fsdp_spec_options_t options = vescomm_fsdp_spec_options_init();
    // One of the presets has the slots for codes, too.
    if (std::string(sweep.preset) == "zero3")
        options.gather_type = options.reduce_type = VESCOMM_I8;
    // A unit that stays in its slot has no secondary copy.
    if (std::string(sweep.preset) == "hpz:2") options.slots = 1;
    Spec spec(options);
    spec.preset(sweep.preset);
    for (const char *name : {"first", "second"}) {
        const auto unit = spec.add_unit(name);
        spec.add_parameter(unit, {.name = "matrix", .shape = {7, 5}});
        spec.add_parameter(unit, {.name = "bias", .shape = {7}});
    }
    return spec;
}

void play(const Sweep &sweep, const std::string &address, std::uint64_t number, Failing failing,
          int rank, Found &found) {
    vescomm_comm_options_t options = vescomm_comm_options_init();
    options.timeout_seconds = timeout_seconds;
    options.node = "node";
    const Communicator comm(rank, sweep.ranks, address, "a secret of this test", &options);
    const Spec spec = describe(sweep);
    vescomm_comm_t *const comms[] = {comm.get()};
    vescomm_fsdp_t *engine = nullptr;
    const bool creates = std::string(sweep.phase) == "create";
    const auto call = [&] {
        return creates ? vescomm_fsdp_create(spec.get(), comms, 1, &engine)
                       : vescomm_fsdp_reset(engine);
    };
    if (!creates) check(vescomm_fsdp_create(spec.get(), comms, 1, &engine));
    if (rank == sweep.victim) internal::testing_support::fail_allocation(number, failing);
    found.first[rank] = call();
    if (rank == sweep.victim) found.allocations = internal::testing_support::stop_failing();
    std::snprintf(found.what[rank], sizeof found.what[rank], "%s",
                  found.first[rank] != VESCOMM_OK ? vescomm_get_last_error() : "");
    if (found.first[rank] != VESCOMM_OK) found.second[rank] = call();
    found.broken[rank] = vescomm_comm_progress(comm.get()) != VESCOMM_OK;
    vescomm_fsdp_free(engine);
}

[[noreturn]] void run_trial(const Sweep &sweep, std::uint64_t number, Failing failing,
                            Found &found) {
    alarm(hang_seconds);
    // Discards log lines. A sink is set so that the library still formats them.
    vescomm_set_log([](void *, std::int32_t, const char *) {}, nullptr);
    const std::string address = internal::testing_support::free_address();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < sweep.ranks; ++rank)
        threads.emplace_back([&, rank] { play(sweep, address, number, failing, rank, found); });
    for (std::thread &thread : threads) thread.join();
    _exit(0);
}

// Returns the problem of a trial, empty if there is none.
std::string judge(const Sweep &sweep, const Found &found, int status) {
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGALRM ? "hangs"
                                           : "ends by signal " + std::to_string(WTERMSIG(status));
    if (WEXITSTATUS(status) != 0) return "exits with " + std::to_string(WEXITSTATUS(status));
    const bool failed = found.first[sweep.victim] != VESCOMM_OK;
    for (int rank = 0; rank < sweep.ranks; ++rank) {
        const auto problem = [&](vescomm_status_t is, const char *call) {
            return "rank " + std::to_string(rank) + ": " + call + " returns " +
                   vescomm_status_get_name(is) + ", and that of rank " +
                   std::to_string(sweep.victim) + " " +
                   vescomm_status_get_name(found.first[sweep.victim]) + ": " + found.what[rank];
        };
        const vescomm_status_t first = found.first[rank];
        if ((first != VESCOMM_OK) != failed || first == VESCOMM_ERROR_TIMEOUT ||
            first == VESCOMM_ERROR_INTERNAL)
            return problem(first, "the call");
        if (failed && found.allocations.failed == 0) return problem(first, "without a reason it");
        const vescomm_status_t second = found.second[rank];
        if ((second != VESCOMM_OK && !found.broken[rank]) || second == VESCOMM_ERROR_TIMEOUT)
            return problem(second, "the second call");
    }
    return {};
}

struct Totals {
    std::uint64_t trials = 0;
    std::uint64_t problems = 0;
};

// Tries all numbers, or a sample of them whose distances grow by a third. If all later allocations
// fail too, the other ranks learn of the failure by a heartbeat, seconds later: a sample has few
// such trials.
void run(const Sweep &sweep, bool all, std::uint64_t from, Found &found, Totals &totals) {
    std::uint64_t last = 0, trials = 0, problems = 0;
    int sampled = 0;
    for (std::uint64_t number = from;; number += all ? 1 : 1 + number / 3) {
        const bool both = all || ++sampled % 6 == 0;
        bool failed = false;
        for (const Failing failing : {Failing::one, Failing::and_later}) {
            if (failing == Failing::and_later && !both) continue;
            found = {};
            const pid_t child = fork();
            if (child == 0) run_trial(sweep, number, failing, found);
            int status = 0;
            waitpid(child, &status, 0);
            const std::string wrong = judge(sweep, found, status);
            ++trials;
            failed |= found.allocations.failed > 0 || !wrong.empty();
            if (found.allocations.failed > 0) last = number;
            if (wrong.empty()) continue;
            ++problems;
            std::printf("FAIL  %s, allocation %llu%s: %s\n", sweep.name().c_str(),
                        static_cast<unsigned long long>(number),
                        failing == Failing::one ? "" : " and all after it", wrong.c_str());
            std::fflush(stdout);
        }
        constexpr std::uint64_t max_problems = 25;
        if (!failed || problems >= max_problems) break;
    }
    std::printf("%s  %s: %llu trials, up to allocation %llu\n", problems > 0 ? "FAIL" : "ok  ",
                sweep.name().c_str(), static_cast<unsigned long long>(trials),
                static_cast<unsigned long long>(last));
    std::fflush(stdout);
    totals.trials += trials;
    totals.problems += problems;
}

}  // namespace
}  // namespace vescomm::fsdp

int main(int count, char **words) {
    using namespace vescomm::fsdp;
    const SweepOptions options(count, words);
    Found &found = *make_shared_between_processes<Found>();
    Totals totals;
    for (const Sweep &sweep : sweeps)
        if (sweep.name().starts_with(options.only))
            run(sweep, options.all, options.from, found, totals);
    std::printf("%llu trials, %llu problems\n", static_cast<unsigned long long>(totals.trials),
                static_cast<unsigned long long>(totals.problems));
    return totals.trials == 0 || totals.problems > 0;
}
