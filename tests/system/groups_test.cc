// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Many communicators of the same processes: split, dup, created at the same time, and shrunk after
// a death. Ranks are processes; only the public API is used.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "vescomm/vescomm.h"

namespace {

// What the processes of one test share.
struct Shared {
    std::atomic<int> arrived;
    std::atomic<int> wrong;
    std::atomic<int> refused;
    std::atomic<int> right;
    std::atomic<int> victim_ready;
};

Shared *make_shared_page() {
    void *page =
        mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return new (page) Shared{};
}

std::uint16_t free_port() {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    bind(socket, reinterpret_cast<sockaddr *>(&address), length);
    getsockname(socket, reinterpret_cast<sockaddr *>(&address), &length);
    close(socket);
    return ntohs(address.sin_port);
}

// A rank ends here when something is wrong, with a line that says what.
[[noreturn]] void fail(const std::string &what) {
    std::fprintf(stderr, "%s: %s\n", what.c_str(), vescomm_last_error());
    _exit(1);
}

void require(vescomm_status_t status, const char *what) {
    if (status != VESCOMM_OK) fail(what);
}

void expect(bool holds, const char *what) {
    if (!holds) fail(std::string("wrong: ") + what);
}

struct Job {
    int ranks;
    int per_node;  // ranks that share a node
    std::uint16_t port = free_port();

    vescomm_status_t create(int rank, const char *tag, vescomm_comm_t **comm) const {
        vescomm_comm_options_t options = vescomm_comm_options();
        options.timeout_seconds = 60;
        const std::string node = "node " + std::to_string(rank / per_node);
        options.node = node.c_str();
        options.tag = tag;
        return vescomm_comm_create(rank, ranks, ("127.0.0.1:" + std::to_string(port)).c_str(),
                                   "the secret of the test", &options, comm);
    }
};

// Runs every rank as a process; those in `killed` end by a signal, all others must return.
void run(const Job &job, const std::function<void(int rank)> &body,
         const std::vector<int> &killed = {}) {
    std::vector<pid_t> processes;
    for (int rank = 0; rank < job.ranks; ++rank) {
        const pid_t process = fork();
        if (process == 0) {
            alarm(100);
            body(rank);
            _exit(0);
        }
        processes.push_back(process);
    }
    for (int rank = 0; rank < job.ranks; ++rank) {
        int status = 0;
        waitpid(processes[rank], &status, 0);
        const bool dies = std::find(killed.begin(), killed.end(), rank) != killed.end();
        EXPECT_EQ(status, dies ? SIGKILL : 0) << "rank " << rank;
    }
}

int rank_of(const vescomm_comm_t *comm) {
    vescomm_comm_info_t info = vescomm_comm_info();
    require(vescomm_comm_query(comm, &info), "query");
    return info.rank;
}

int ranks_of(const vescomm_comm_t *comm) {
    vescomm_comm_info_t info = vescomm_comm_info();
    require(vescomm_comm_query(comm, &info), "query");
    return info.ranks;
}

// The sum of what every rank gives, in each of many elements.
void expect_sum(vescomm_comm_t *comm, float mine, float sum, std::size_t elements = 1000) {
    std::vector<float> data(elements, mine);
    require(vescomm_all_reduce(comm, data.data(), data.data(), static_cast<int64_t>(elements),
                               VESCOMM_F32, VESCOMM_SUM, nullptr, nullptr),
            "all_reduce");
    for (const float each : data) expect(each == sum, "a sum");
}

TEST(Groups, SplitByColorInTheOrderOfKeys) {
    for (const int per_node : {6, 2}) {
        const Job job{6, per_node};
        run(job, [&](int rank) {
            vescomm_comm_t *all = nullptr, *part = nullptr, *half = nullptr;
            require(job.create(rank, nullptr, &all), "create");
            // {0, 2, 4} in reverse order, {1, 3} in order, 5 in none.
            const int color = rank == 5 ? -1 : rank % 2;
            require(vescomm_comm_split(all, color, color == 0 ? -rank : 7, nullptr, &part),
                    "split");
            if (color < 0) {
                expect(part == nullptr, "a communicator without a color");
            } else {
                expect(ranks_of(part) == (color == 0 ? 3 : 2), "number of ranks");
                expect(rank_of(part) == (color == 0 ? 2 - rank / 2 : rank / 2), "rank");
                expect_sum(part, static_cast<float>(rank), color == 0 ? 6 : 4);
                // A split of a split, whose parent goes first.
                require(vescomm_comm_split(part, rank_of(part) == 0 ? 1 : 0, 0, nullptr, &half),
                        "split again");
                require(vescomm_comm_free(part), "free");
                expect_sum(half, 1, static_cast<float>(ranks_of(half)));
            }
            expect_sum(all, 1, 6);
            require(vescomm_comm_free(all), "free");
            if (half != nullptr) {
                expect_sum(half, 2, static_cast<float>(2 * ranks_of(half)), 100000);
                require(vescomm_comm_free(half), "free");
            }
        });
    }
}

TEST(Groups, DuplicatesShareDescriptorsAndAreIndependent) {
    const Job job{4, 4};
    run(job, [&](int rank) {
        // 78 communicators exhausted 1,024 descriptors of rank 0.
        constexpr int count = 100;
        const rlimit few{256, 256};
        setrlimit(RLIMIT_NOFILE, &few);
        vescomm_comm_t *all = nullptr;
        require(job.create(rank, nullptr, &all), "create");
        std::vector<vescomm_comm_t *> comms(count);
        for (auto &comm : comms) require(vescomm_comm_dup(all, nullptr, &comm), "dup");
        for (int i = 0; i < count; ++i)
            expect_sum(comms[static_cast<std::size_t>(i)], static_cast<float>(i * rank),
                       static_cast<float>(i * 6), 10);
        for (vescomm_comm_t *comm : comms) require(vescomm_comm_free(comm), "free");
        expect_sum(all, 1, 4);
        require(vescomm_comm_free(all), "free");
    });
}

TEST(Groups, CommunicatorsAreCreatedOneAfterAnother) {
    const Job job{3, 3};
    run(job, [&](int rank) {
        for (int round = 0; round < 20; ++round) {
            vescomm_comm_t *first = nullptr, *second = nullptr;
            require(job.create(rank, nullptr, &first), "create");
            if (round % 2 == 0) require(job.create(rank, nullptr, &second), "create another");
            expect_sum(first, 1, 3, 10);
            if (second != nullptr) {
                expect_sum(second, 2, 6, 10);
                require(vescomm_comm_free(second), "free");
            }
            require(vescomm_comm_free(first), "free");
        }
    });
}

// Two threads of each rank create a communicator each at the same time. What they sum tells them
// apart.
void create_at_once(bool tags) {
    const int rounds = tags ? 20 : 5;
    for (int round = 0; round < rounds; ++round) {
        const Job job{3, 3};
        Shared *shared = make_shared_page();
        run(job, [&](int rank) {
            const auto create = [&](int thread) {
                vescomm_comm_t *comm = nullptr;
                const std::string tag = "thread " + std::to_string(thread);
                ++shared->arrived;
                while (shared->arrived < 2 * job.ranks) std::this_thread::yield();
                if (job.create(rank, tags ? tag.c_str() : nullptr, &comm) != VESCOMM_OK) {
                    ++shared->refused;
                    return;
                }
                const float mine = thread == 0 ? 1 : 100;
                std::vector<float> data(64, mine);
                if (vescomm_all_reduce(comm, data.data(), data.data(), 64, VESCOMM_F32, VESCOMM_SUM,
                                       nullptr, nullptr) != VESCOMM_OK)
                    ++shared->refused;
                else if (data[0] == 3 * mine) ++shared->right;
                else ++shared->wrong;
                vescomm_comm_free(comm);
            };
            std::thread other([&] { create(1); });
            create(0);
            other.join();
        });
        EXPECT_EQ(shared->wrong, 0) << "round " << round;
        EXPECT_EQ(shared->right + shared->refused, 2 * job.ranks);
        const bool all_right = shared->right == 2 * job.ranks;
        EXPECT_TRUE(all_right || !tags);
        munmap(shared, sizeof *shared);
    }
}

TEST(Groups, ThreadsCreateWithTagsOfTheirOwn) {
    create_at_once(true);
}

TEST(Groups, ThreadsWithoutTagsAreRefusedAndNeverCrossed) {
    create_at_once(false);
}

// Kills a rank somewhere in the middle of traffic; the others shrink and go on.
void survive(int ranks, int per_node, int victim) {
    SCOPED_TRACE(testing::Message()
                 << ranks << " ranks, " << per_node << " on a node, victim " << victim);
    const Job job{ranks, per_node};
    run(job,
        [&](int rank) {
            vescomm_comm_t *comm = nullptr, *less = nullptr;
            require(job.create(rank, nullptr, &comm), "create");
            std::vector<float> data(5000, 1);
            for (int i = 0;; ++i) {
                if (rank == victim && i == 20 + 7 * victim) raise(SIGKILL);
                if (vescomm_all_reduce(comm, data.data(), data.data(), 5000, VESCOMM_F32,
                                       VESCOMM_MAX, nullptr, nullptr) != VESCOMM_OK)
                    break;
            }
            const auto begin = std::chrono::steady_clock::now();
            require(vescomm_comm_shrink(comm, nullptr, 0, &less), "shrink");
            const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
            if (took.count() > 2 && std::getenv("VESCOMM_TEST_SLOW") == nullptr)
                std::fprintf(stderr, "shrinking took %g s\n", took.count());
            expect(ranks_of(less) == ranks - 1, "number of survivors");
            expect(rank_of(less) == rank - (rank > victim ? 1 : 0), "rank among the survivors");
            expect_sum(less, 1, static_cast<float>(ranks - 1));
            require(vescomm_comm_free(comm), "free the broken one");
            expect_sum(less, 2, static_cast<float>(2 * (ranks - 1)), 100000);
            require(vescomm_comm_free(less), "free");
        },
        {victim});
}

TEST(Groups, SurvivorsGoOnAfterTheDeathOfAnyRank) {
    for (int victim = 0; victim < 4; ++victim) survive(4, 4, victim);
}

TEST(Groups, SurvivorsOnSeveralNodesGoOn) {
    for (int victim = 0; victim < 5; ++victim) survive(5, 2, victim);
}

TEST(Groups, ShrinkLeavesOutARankThatLives) {
    const Job job{3, 3};
    Shared *const page = make_shared_page();
    run(job, [&](int rank) {
        vescomm_comm_t *comm = nullptr, *less = nullptr;
        require(job.create(rank, nullptr, &comm), "create");
        expect_sum(comm, 1, 3);
        // Shrinking aborts what rank 1 is still doing, so it must have done it.
        page->arrived += 1;
        while (page->arrived < 3) std::this_thread::yield();
        if (rank != 1) {
            const int32_t failed = 1;
            require(vescomm_comm_shrink(comm, &failed, 1, &less), "shrink");
            expect(ranks_of(less) == 2, "number of ranks");
            expect_sum(less, 1, 2);
            require(vescomm_comm_free(less), "free");
        }
        require(vescomm_comm_free(comm), "free");
    });
}

TEST(Groups, ShrinkRefusesRanksThatAreNone) {
    const Job job{1, 1};
    run(job, [&](int rank) {
        vescomm_comm_t *comm = nullptr, *less = nullptr;
        require(job.create(rank, nullptr, &comm), "create");
        for (const int32_t failed : {0, 1, -1})
            expect(vescomm_comm_shrink(comm, &failed, 1, &less) == VESCOMM_ERROR_INVALID_ARGUMENT,
                   "a rank that is none");
        require(vescomm_comm_shrink(comm, nullptr, 0, &less), "shrink");
        expect(ranks_of(less) == 1, "number of ranks");
        require(vescomm_comm_free(less), "free");
        require(vescomm_comm_free(comm), "free");
    });
}

}  // namespace
