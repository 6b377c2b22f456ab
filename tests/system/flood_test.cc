// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A job starts while unauthenticated peers flood every port on which it listens. One of its ranks
// has a slow connection to rank 0. The job must start, work and end.
//
//     VESCOMM_TEST_REPETITIONS    jobs of each test
#include <sys/syscall.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "system/unauthenticated_peers.h"

namespace {

// If not 0, this process receives data from this loopback port with a delay.
std::atomic<int> slow_port{0};
constexpr int round_trip_milliseconds = 40;

// The second message from there is the welcome: rank 0 has admitted this process. The first one is
// the proof that rank 0 knows the secret.
std::atomic<int> messages{0};
std::atomic<std::chrono::steady_clock::time_point> welcomed{};

}  // namespace

// Replaces the function of the C library, to delay messages from slow_port.
extern "C" ssize_t recvmsg(int socket, msghdr *message, int flags) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (slow_port > 0 && getpeername(socket, reinterpret_cast<sockaddr *>(&peer), &size) == 0 &&
        peer.sin_family == AF_INET && ntohs(peer.sin_port) == slow_port)
        poll(nullptr, 0, round_trip_milliseconds);
    const ssize_t got = syscall(SYS_recvmsg, socket, message, flags);
    const int error = errno;
    if (slow_port > 0 && got > 0 && peer.sin_family == AF_INET && ++messages == 2)
        welcomed = std::chrono::steady_clock::now();
    errno = error;
    return got;
}

namespace {

using namespace forked_ranks;
using namespace unauthenticated_peers;
using Clock = std::chrono::steady_clock;

constexpr int flooders = 2;
constexpr double flood_rate = 20'000;  // connections a second, at most
// Connections before the slow rank starts, so that it joins during the flood.
constexpr int connections_before = 2000;
struct Shared {
    Targets targets;
    std::atomic<double> welcome_seconds;  // until rank 0 has admitted the slow rank
    std::atomic<double> join_seconds;  // until the slow rank has its communicator
    std::atomic<double> rate;  // connections a second while the slow rank joined
};

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Measurements of several jobs.
struct Measured {
    std::vector<double> welcomes, joins, rates;
};

// Runs a job under a flood.
void run_flooded(int per_node, Measured &measured) {
    const Job job{3, per_node};
    Shared *shared = make_shared_page<Shared>();
    Targets &targets = shared->targets;
    {
        record_first_message(targets);
        const auto scout = make_scout(targets);
        std::vector<std::unique_ptr<Process>> flood;
        for (unsigned i = 0; i < flooders; ++i)
            flood.push_back(std::make_unique<Process>([&, i] {
                UnauthenticatedPeer peer(targets, i);
                const auto begin = Clock::now();
                for (double visits = 0; !targets.over;) {
                    if (seconds_since(begin) * flood_rate / flooders < visits) {
                        poll(nullptr, 0, 1);
                        continue;
                    }
                    peer.visit_port();
                    visits += targets.port_count > 0;
                }
            }));
        run(job, [&](int rank) {
            targets.processes[rank] = getpid();
            if (rank == 2) {
                slow_port = job.port;
                while (targets.connected < connections_before) std::this_thread::yield();
            }
            const auto begin = Clock::now();
            const std::int64_t before = targets.connected;
            vescomm_comm_t *comm = nullptr, *copy = nullptr;
            require(job.create(rank, nullptr, &comm), "create");
            slow_port = 0;
            if (rank == 2) {
                const std::chrono::duration<double> welcome = welcomed.load() - begin;
                shared->welcome_seconds = welcome.count();
                shared->join_seconds = seconds_since(begin);
                shared->rate = static_cast<double>(targets.connected - before) /
                               std::max(1e-3, seconds_since(begin));
            }
            for (int i = 0; i < 100; ++i) expect_sum(comm, 1, 3, 5000);
            require(vescomm_comm_dup(comm, nullptr, &copy), "dup");
            expect_sum(copy, 2, 6);
            require(vescomm_comm_free(copy), "free");
            require(vescomm_comm_free(comm), "free");
        });
        targets.over = true;
    }
    EXPECT_GE(targets.connected, connections_before);
    EXPECT_EQ(targets.elsewhere, 0) << "a port is open on another interface";
    measured.welcomes.push_back(shared->welcome_seconds);
    measured.joins.push_back(shared->join_seconds);
    measured.rates.push_back(shared->rate);
    munmap(shared, sizeof *shared);
}

void run_floods(int per_node) {
    Measured measured;
    for (int i = repetitions(2); i > 0 && !testing::Test::HasFailure(); --i)
        run_flooded(per_node, measured);
    for (auto *values : {&measured.welcomes, &measured.joins, &measured.rates})
        std::sort(values->begin(), values->end());
    const std::size_t median = measured.joins.size() / 2;
    std::printf(
        "rank 0 admitted the slow rank within %.3f s (median), %.3f s (longest of %zu); it had its "
        "communicator within %.3f s (median), %.3f s (longest); %.0f connections a second "
        "(median)\n",
        measured.welcomes[median], measured.welcomes.back(), measured.joins.size(),
        measured.joins[median], measured.joins.back(), measured.rates[median]);
}

TEST(Flood, SlowRankJoinsOnOneNode) {
    run_floods(3);
}

TEST(Flood, SlowRankJoinsOnThreeNodes) {
    run_floods(1);
}

}  // namespace
