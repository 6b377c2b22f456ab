// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Communicators of the same processes share the connections between nodes. Ranks are processes on
// emulated nodes.
#include <dirent.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>

#include "system/forked_ranks.h"

namespace {

using namespace forked_ranks;

// Returns the number of connected TCP sockets of this process.
int tcp_connections() {
    int count = 0;
    const std::unique_ptr<DIR, int (*)(DIR *)> folder(opendir("/proc/self/fd"), closedir);
    while (const dirent *entry = readdir(folder.get())) {
        sockaddr_storage peer{};
        socklen_t length = sizeof peer;
        const int descriptor = std::atoi(entry->d_name);
        if (getpeername(descriptor, reinterpret_cast<sockaddr *>(&peer), &length) == 0 &&
            peer.ss_family == AF_INET)
            ++count;
    }
    return count;
}

vescomm_comm_t *split(vescomm_comm_t *comm, int color) {
    vescomm_comm_t *part = nullptr;
    require(vescomm_comm_split(comm, color, 0, nullptr, &part), "split");
    return part;
}

void free_comm(vescomm_comm_t *comm) {
    require(vescomm_comm_free(comm), "free");
}

TEST(SharedConnections, SubgroupsUseTheConnectionsOfTheirParent) {
    const Job job{6, 2};
    run(job, [&](int rank) {
        vescomm_comm_t *all = nullptr;
        require(job.create(rank, nullptr, &all), "create");
        const int before = tcp_connections();
        expect(before >= 4, "four ranks are on other nodes");
        std::vector<vescomm_comm_t *> comms;
        for (int round = 0; round < 10; ++round) {
            comms.push_back(split(all, 0));
            comms.push_back(split(all, rank % 2));  // one rank of each node
            comms.push_back(split(all, rank < 3 ? 0 : 1));  // a node and a half
        }
        expect(tcp_connections() == before, "no communicator makes connections of its own");
        // All communicators have an operation in progress at the same time.
        std::vector<std::vector<float>> data(comms.size());
        std::vector<vescomm_request_t *> requests(comms.size());
        for (std::size_t i = 0; i < comms.size(); ++i) {
            data[i].assign(20000, static_cast<float>(i));
            require(vescomm_all_reduce(comms[i], data[i].data(), data[i].data(), 20000, VESCOMM_F32,
                                       VESCOMM_SUM, nullptr, nullptr, &requests[i]),
                    "start all_reduce");
        }
        for (std::size_t i = comms.size(); i-- > 0;) {
            require(vescomm_request_wait(requests[i]), "wait");
            require(vescomm_request_free(requests[i]), "free a request");
            for (const float each : data[i])
                expect(each == static_cast<float>(i) * static_cast<float>(ranks_of(comms[i])),
                       "a sum of requests that run at the same time");
        }
        // The connections exist as long as one communicator that shares them.
        free_comm(all);
        for (std::size_t i = 0; i + 1 < comms.size(); ++i) free_comm(comms[i]);
        vescomm_comm_t *last = comms.back(), *copy = nullptr;
        // Ranks of other groups may have ended, and UCX then closes its connections to them.
        expect(tcp_connections() <= before, "the last communicator keeps the connections");
        require(vescomm_comm_dup(last, nullptr, &copy), "dup");
        expect(tcp_connections() <= before, "a copy of the last shares them");
        free_comm(last);
        expect_sum(copy, 1, 3);
        free_comm(copy);
    });
}

TEST(SharedConnections, ACommunicatorWithMoreRanksCreatesConnections) {
    const Job job{4, 1};
    run(job, [&](int rank) {
        vescomm_comm_t *all = nullptr, *again = nullptr;
        require(job.create(rank, nullptr, &all), "create");
        vescomm_comm_t *pair = split(all, rank / 2);
        const int before = tcp_connections();
        free_comm(all);
        expect(tcp_connections() == before, "the pair keeps them");
        // The copy shares the connections of the pair.
        vescomm_comm_t *copy = nullptr;
        require(vescomm_comm_dup(pair, nullptr, &copy), "dup");
        free_comm(pair);
        require(job.create(rank, nullptr, &again), "create again");
        expect_sum(again, 1, 4);
        expect_sum(copy, 1, 2);
        free_comm(copy);
        expect_sum(again, 2, 8, 100000);
        free_comm(again);
    });
}

// Threads of each rank create communicators in different orders, with and without existing
// connections, while other threads free theirs.
TEST(SharedConnections, ThreadsCreateAndFreeCommunicators) {
    const Job job{4, 2};
    run(job, [&](int rank) {
        const auto work = [&](int thread) {
            const std::string tag = "thread " + std::to_string(thread);
            std::mt19937 random(static_cast<unsigned>(7 * thread));  // the same on every rank
            for (int round = 0; round < 5; ++round) {
                vescomm_comm_t *comm = nullptr, *copy = nullptr;
                require(job.create(rank, tag.c_str(), &comm), "create");
                const auto mine = static_cast<float>(10 * thread + round);
                expect_sum(comm, mine, 4 * mine, 1 + random() % 5000);
                require(vescomm_comm_dup(comm, nullptr, &copy), "dup");
                if (random() % 2 == 0) free_comm(std::exchange(comm, nullptr));
                expect_sum(copy, mine, 4 * mine, 1 + random() % 5000);
                if (comm != nullptr) free_comm(comm);
                free_comm(copy);
            }
        };
        std::vector<std::thread> threads;
        for (int thread = 0; thread < 3; ++thread) threads.emplace_back(work, thread);
        for (std::thread &thread : threads) thread.join();
    });
}

TEST(SharedConnections, AbortedCommunicatorsDoNotAffectOthers) {
    const Job job{4, 2};
    run(job, [&](int rank) {
        vescomm_comm_t *all = nullptr, *broken = nullptr;
        require(job.create(rank, nullptr, &all), "create");
        for (int round = 0; round < 5; ++round) {
            require(vescomm_comm_dup(all, nullptr, &broken), "dup");
            std::vector<float> data(1 << 20, 1);
            vescomm_request_t *request = nullptr;
            // Rank 3 aborts while data of the other ranks is in flight.
            if (rank == 3) {
                require(vescomm_comm_abort(broken, "the test says so"), "abort");
            } else if (vescomm_all_reduce(broken, data.data(), data.data(), 1 << 20, VESCOMM_F32,
                                          VESCOMM_SUM, nullptr, nullptr, &request) == VESCOMM_OK) {
                expect(vescomm_request_wait(request) == VESCOMM_ERROR_ABORTED, "it was aborted");
                vescomm_request_free(request);
            }
            expect_sum(all, 1, 4, 300000);
            vescomm_comm_free(broken);
            expect_sum(all, 2, 8, 10);
        }
        free_comm(all);
    });
}

}  // namespace
