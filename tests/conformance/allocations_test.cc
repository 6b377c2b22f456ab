// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Makes allocation number n of rank 0 fail, for every n, in every phase of a communicator's life:
//
//     allocations_test [--all] [--only CLUSTER/PHASE] [--from N]
//
// Each trial is a process of its own, and its ranks are threads. Most of the time a trial waits, so
// several phases are swept at the same time. The test requires:
// - Every call of every rank returns a status soon after the timeout at the latest.
// - Every rank can free all its objects afterwards.
// - If a call fails and the communicator is not broken, the call can be repeated and succeeds.
// - No rank waits until the timeout for a collective creation.
// - The process is not terminated.
// The cluster "tcp_control" uses the real control plane. All others use that of the tests, in which
// allocations do not fail.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "conformance/allocation_phases.h"
#include "support/free_port.h"
#include "support/sweep_options.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;

const std::vector<Cluster> clusters = {
    {"one_rank", false, {0}},
    {"one_node", false, {0, 0}},
    {"two_nodes", true, {0, 1}},
#if VESCOMM_HAVE_UCX
    {"ucx", false, {0, 1}, Allocator::cpp},
#endif
    {"tcp_control", false, {0, 0}, Allocator::all, true},
};

void play(World &world, int rank) {
    const WithoutFailing shelter;
    Rank r(world, rank);
    for (int phase = 0; phase <= world.trial.phase && !r.given_up; ++phase) {
        if (!takes_part(phase, world.trial.phase)) continue;
        const bool failing = r.victim() && phase == world.trial.phase;
        if (failing)
            fail_allocation(world.trial.number, world.trial.failing, world.cluster.allocator);
        all_phases()[phase].body(r);
        if (failing) world.found.allocations = stop_failing();
    }
    if (r.given_up && r.comm != nullptr) vescomm_comm_abort(r.comm, "it has given up");
    free_all(r);
    world.found.done[rank] = true;
}

[[noreturn]] void run_trial(const Cluster &cluster, const Trial &trial, Found &found,
                            const std::string &folder) {
    alarm(hang_seconds);
    // Discards log lines. A sink is set so that the library still formats them.
    vescomm_set_log([](void *, std::int32_t, const char *) {}, nullptr);
    World world{cluster,
                trial,
                found,
                std::make_shared<LocalControlHub>(cluster.ranks()),
                make_loopback_network(Nodes::from_numbers(cluster.node_of)),
                folder,
                free_address()};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < cluster.ranks(); ++rank)
        threads.emplace_back([&, rank] { play(world, rank); });
    for (std::thread &thread : threads) thread.join();
    _exit(0);
}

// Returns the problem of a trial, empty if there is none.
std::string judge(const Cluster &cluster, const Phase &phase, const Found &found, int status) {
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGALRM ? "hangs"
                                           : "ends by signal " + std::to_string(WTERMSIG(status));
    if (WEXITSTATUS(status) != 0) return "exits with " + std::to_string(WEXITSTATUS(status));
    for (int rank = 0; rank < cluster.ranks(); ++rank) {
        if (found.what[rank][0] != '\0')
            return "rank " + std::to_string(rank) + ": " + found.what[rank];
        // In a phase that ends the communicator, a rank may fail with its peer's abort.
        if (phase.creates && found.status[rank] == VESCOMM_ERROR_TIMEOUT)
            return "rank " + std::to_string(rank) + " waits until the timeout";
        if (found.allocations.failed == 0 && !phase.last && found.status[rank] != VESCOMM_OK)
            return "rank " + std::to_string(rank) +
                   " fails without a reason: " + vescomm_status_get_name(found.status[rank]);
    }
    return {};
}

// In memory that all processes of the test share.
struct Totals {
    std::atomic<std::uint64_t> trials{0};
    std::atomic<std::uint64_t> problems{0};
};

class Driver {
public:
    Driver() {
        char name[] = "/tmp/vescomm-allocations-test-XXXXXX";
        if (mkdtemp(name) != nullptr) folder_ = name;
        found_ = make_shared_between_processes<Found>();
    }
    ~Driver() { std::filesystem::remove_all(folder_); }

    // Tries all numbers, or a sample of them whose distances grow by a third.
    void sweep(const Cluster &cluster, int phase, bool all, std::uint64_t from, Totals &totals) {
        const std::string name = std::string(cluster.name) + "/" + all_phases()[phase].name;
        std::uint64_t trials = 0, problems = 0, last = 0;
        for (std::uint64_t number = from;; number += all ? 1 : 1 + number / 3) {
            bool failed = false;
            for (const Failing failing : {Failing::one, Failing::and_later}) {
                // A sample alternates between the two kinds of failure.
                if (!all && (number + (failing == Failing::one ? 0 : 1)) % 2 == 0) continue;
                const std::string wrong = attempt(cluster, {phase, number, failing});
                ++trials;
                failed |= found_->allocations.failed > 0 || !wrong.empty();
                if (found_->allocations.failed > 0) last = number;
                if (wrong.empty()) continue;
                ++problems;
                std::printf("FAIL  %s, allocation %llu%s: %s\n", name.c_str(),
                            static_cast<unsigned long long>(number),
                            failing == Failing::one ? "" : " and all after it", wrong.c_str());
                std::fflush(stdout);
            }
            if (!failed) break;
            constexpr std::uint64_t max_problems = 25;
            if (problems >= max_problems) break;
        }
        std::printf("%s  %s: %llu trials, up to allocation %llu\n", problems ? "FAIL" : "ok  ",
                    name.c_str(), static_cast<unsigned long long>(trials),
                    static_cast<unsigned long long>(last));
        std::fflush(stdout);
        totals.trials += trials;
        totals.problems += problems;
    }

private:
    std::string attempt(const Cluster &cluster, const Trial &trial) {
        *found_ = {};
        const pid_t child = fork();
        if (child == 0) run_trial(cluster, trial, *found_, folder_);
        int status = 0;
        waitpid(child, &status, 0);
        return judge(cluster, all_phases()[trial.phase], *found_, status);
    }

    std::string folder_;
    Found *found_ = nullptr;
};

struct Sweep {
    const Cluster *cluster;
    int phase;
};

std::vector<Sweep> selected(const std::string &only) {
    std::vector<Sweep> sweeps;
    for (const Cluster &cluster : clusters)
        for (int phase = 0; phase < static_cast<int>(all_phases().size()); ++phase) {
            const std::string name = std::string(cluster.name) + "/" + all_phases()[phase].name;
            if (name.starts_with(only) && !(only.empty() && cluster.real_control))
                sweeps.push_back({&cluster, phase});
        }
    return sweeps;
}

// Each sweep in a process of its own, several at a time. A process that does not exit with 0 counts
// as a problem.
void run_all(const std::vector<Sweep> &sweeps, bool all, std::uint64_t from, Totals &totals) {
    constexpr int at_once = 8;
    int running = 0;
    const auto wait_for_one = [&] {
        int status = 0;
        const pid_t ended = wait(&status);
        --running;
        if (ended > 0 && status == 0) return;
        std::printf("FAIL  process %d, which swept a phase, ended with status %#x\n", ended,
                    status);
        ++totals.problems;
    };
    for (const Sweep &sweep : sweeps) {
        if (running == at_once) wait_for_one();
        const pid_t child = fork();
        if (child < 0) {
            std::perror("fork");
            ++totals.problems;
            break;
        }
        if (child == 0) {
            Driver().sweep(*sweep.cluster, sweep.phase, all, from, totals);
            _exit(0);
        }
        ++running;
    }
    while (running > 0) wait_for_one();
}

}  // namespace
}  // namespace vescomm::internal

int main(int count, char **words) {
    using namespace vescomm::internal;
    setenv("UCX_TLS", "tcp,self", 1);
    setenv("UCX_NET_DEVICES", "lo", 1);
    const SweepOptions options(count, words);
    auto &totals = *make_shared_between_processes<Totals>();
    run_all(selected(options.only), options.all, options.from, totals);
    std::printf("%llu trials, %llu problems\n",
                static_cast<unsigned long long>(totals.trials.load()),
                static_cast<unsigned long long>(totals.problems.load()));
    return totals.trials == 0 || totals.problems > 0;
}
