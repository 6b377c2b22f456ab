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

}  // namespace

// Replaces the function of the C library, to delay messages from slow_port.
extern "C" ssize_t recvmsg(int socket, msghdr *message, int flags) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    if (slow_port > 0 && getpeername(socket, reinterpret_cast<sockaddr *>(&peer), &size) == 0 &&
        peer.sin_family == AF_INET && ntohs(peer.sin_port) == slow_port)
        poll(nullptr, 0, round_trip_milliseconds);
    return syscall(SYS_recvmsg, socket, message, flags);
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
    std::atomic<double> join_seconds;  // of the slow rank
    std::atomic<double> rate;  // connections a second while the slow rank joined
};

double seconds_since(Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Runs a job under a flood. Appends the join time of the slow rank and the rate of connections.
void run_flooded(int per_node, std::vector<double> &seconds, std::vector<double> &rates) {
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
    seconds.push_back(shared->join_seconds);
    rates.push_back(shared->rate);
    munmap(shared, sizeof *shared);
}

void run_floods(int per_node) {
    std::vector<double> seconds, rates;
    for (int i = repetitions(2); i > 0 && !testing::Test::HasFailure(); --i)
        run_flooded(per_node, seconds, rates);
    std::sort(seconds.begin(), seconds.end());
    std::sort(rates.begin(), rates.end());
    std::printf(
        "the slow rank joined within %.3f s (median), %.3f s (longest of %zu); %.0f "
        "connections a second (median)\n",
        seconds[seconds.size() / 2], seconds.back(), seconds.size(), rates[rates.size() / 2]);
}

TEST(Flood, SlowRankJoinsOnOneNode) {
    run_floods(3);
}

TEST(Flood, SlowRankJoinsOnThreeNodes) {
    run_floods(1);
}

}  // namespace
