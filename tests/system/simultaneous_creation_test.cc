// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Two threads of each rank create communicators at the same time, repeatedly. Each thread
// contributes other values, so a sum shows if a communicator has ranks of different threads.
//
//     VESCOMM_TEST_REPETITIONS    iterations of each test
#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "system/forked_ranks.h"

namespace {

using namespace forked_ranks;

struct Shared {
    std::atomic<std::int64_t> arrived;
    std::atomic<int> right;
    std::atomic<int> wrong;
    std::atomic<int> refused;  // creations that returned the documented status
    std::atomic<int> failed;  // creations that returned another error
};

// Waits until `count` threads have arrived in this round.
void meet(Shared *shared, int round, int count) {
    ++shared->arrived;
    while (shared->arrived < static_cast<std::int64_t>(round + 1) * count)
        std::this_thread::yield();
}

float value_of(int thread, int round) {
    return static_cast<float>((thread == 0 ? 1 : 1000) + round % 7);
}

// Runs `body` in two threads.
void in_two_threads(const std::function<void(int thread)> &body) {
    std::thread other([&] { body(1); });
    body(0);
    other.join();
}

// Creates a communicator, makes an all_reduce, and counts the outcome in `shared`.
void create_and_sum(const Job &job, int rank, const char *tag, int thread, int round,
                    Shared *shared) {
    vescomm_comm_t *comm = nullptr;
    const vescomm_status_t created = job.create(rank, tag, &comm);
    if (created != VESCOMM_OK) {
        const bool documented = created == VESCOMM_ERROR_INVALID_ARGUMENT;
        if (!documented)
            std::fprintf(stderr, "round %d, rank %d, thread %d: %s\n", round, rank, thread,
                         vescomm_get_last_error());
        ++(documented ? shared->refused : shared->failed);
        return;
    }
    std::array<float, 64> data;
    data.fill(value_of(thread, round));
    const vescomm_status_t summed = vescomm_all_reduce(
        comm, data.data(), data.data(), 64, VESCOMM_F32, VESCOMM_SUM, nullptr, nullptr, nullptr);
    bool right = true;
    for (const float each : data)
        right = right && each == static_cast<float>(job.ranks) * value_of(thread, round);
    if (summed == VESCOMM_ERROR_INVALID_ARGUMENT) ++shared->refused;
    else if (summed != VESCOMM_OK) ++shared->failed;
    else ++(right ? shared->right : shared->wrong);
    vescomm_comm_free(comm);
}

// Runs all rounds in the same processes.
void create_in_one_job(const Job &job, bool tags, int rounds) {
    Shared *shared = make_shared_page<Shared>();
    run(job, [&](int rank) {
        in_two_threads([&](int thread) {
            const std::string tag = "thread " + std::to_string(thread);
            for (int round = 0; round < rounds; ++round) {
                // Threads with tags meet only every second round: tags keep them apart.
                if (!tags || round % 2 == 0) meet(shared, tags ? round / 2 : round, 2 * job.ranks);
                create_and_sum(job, rank, tags ? tag.c_str() : nullptr, thread, round, shared);
            }
        });
    });
    EXPECT_EQ(shared->wrong, 0);
    EXPECT_EQ(shared->failed, 0);
    if (tags) {
        EXPECT_EQ(shared->refused, 0);
    }
    EXPECT_EQ(shared->right + shared->refused, 2 * job.ranks * rounds);
    std::printf("%d creations were right, %d refused, %d wrong, %d failed otherwise\n",
                shared->right.load(), shared->refused.load(), shared->wrong.load(),
                shared->failed.load());
    munmap(shared, sizeof *shared);
}

Job job_of(int ranks, int per_node, int rounds) {
    Job job{ranks, per_node};
    job.max_seconds = 100 + static_cast<unsigned>(rounds);
    return job;
}

TEST(SimultaneousCreation, SucceedsWithTags) {
    const int rounds = repetitions(40);
    create_in_one_job(job_of(3, 3, rounds), true, rounds);
}

TEST(SimultaneousCreation, SucceedsWithTagsOnTwoNodes) {
    const int rounds = repetitions(40);
    create_in_one_job(job_of(3, 2, rounds), true, rounds);
}

TEST(SimultaneousCreation, SucceedsOrIsRejectedWithoutTags) {
    const int rounds = repetitions(20);
    create_in_one_job(job_of(3, 3, rounds), false, rounds);
}

// Creations that do not overlap in any process, but in another order of threads on one rank: only a
// comparison between ranks can detect that.
TEST(SimultaneousCreation, ThreadsInDifferentOrdersAreRejected) {
    const Job job{3, 2};
    Shared *shared = make_shared_page<Shared>();
    run(job, [&](int rank) {
        const auto create = [&](bool main, int round) {
            if (main) create_and_sum(job, rank, nullptr, 0, round, shared);
            else std::thread([&] { create_and_sum(job, rank, nullptr, 1, round, shared); }).join();
        };
        for (const bool main : {true, false}) create(main, 0);  // the same order everywhere
        expect(shared->wrong == 0 && shared->refused == 0, "creations in the same order");
        for (const bool main : {true, false}) create(main == (rank != 1), 1);
    });
    EXPECT_EQ(shared->right, 2 * job.ranks);
    EXPECT_EQ(shared->refused, 2 * job.ranks);
    EXPECT_EQ(shared->wrong, 0);
    EXPECT_EQ(shared->failed, 0);
    munmap(shared, sizeof *shared);
}

// The first communicators of new processes: the threads also create the session at the same time.
TEST(SimultaneousCreation, SucceedsOrIsRejectedWithoutTagsInNewProcesses) {
    const int rounds = repetitions(20);
    int right = 0, refused = 0;
    for (int round = 0; round < rounds; ++round) {
        SCOPED_TRACE(round);
        const Job job{3, round % 2 == 0 ? 3 : 2};
        Shared *shared = make_shared_page<Shared>();
        run(job, [&](int rank) {
            in_two_threads([&](int thread) {
                meet(shared, 0, 2 * job.ranks);
                create_and_sum(job, rank, nullptr, thread, round, shared);
                // A rank whose calls were refused must not end: it gives the reason to later ranks.
                meet(shared, 1, 2 * job.ranks);
            });
        });
        EXPECT_EQ(shared->wrong, 0);
        EXPECT_EQ(shared->failed, 0);
        EXPECT_EQ(shared->right + shared->refused, 2 * job.ranks);
        right += shared->right;
        refused += shared->refused;
        munmap(shared, sizeof *shared);
    }
    std::printf("%d creations were right, %d refused\n", right, refused);
}

// Each thread has a parent communicator, and derives communicators from it at its own pace.
void derive(int per_node) {
    const int rounds = repetitions(40);
    const Job job = job_of(4, per_node, rounds);
    run(job, [&](int rank) {
        vescomm_comm_t *all = nullptr;
        std::array<vescomm_comm_t *, 2> parents{};
        require(job.create(rank, nullptr, &all), "create");
        for (auto &parent : parents) require(vescomm_comm_dup(all, nullptr, &parent), "dup");
        in_two_threads([&](int thread) {
            vescomm_comm_t *parent = parents[static_cast<std::size_t>(thread)];
            std::mt19937 random(static_cast<unsigned>(thread));  // the same on every rank
            for (int round = 0; round < rounds; ++round) {
                vescomm_comm_t *made = nullptr;
                const float mine = value_of(thread, round);
                const auto kind = random() % 4;
                if (kind == 0) {
                    require(vescomm_comm_dup(parent, nullptr, &made), "dup");
                } else if (kind == 1) {
                    require(vescomm_comm_split(parent, rank % 2, -rank, nullptr, &made), "split");
                    expect(rank_of(made) == 1 - rank / 2, "the rank of a key");
                } else if (kind == 2) {
                    require(vescomm_comm_split(parent, rank / 2, rank, nullptr, &made), "split");
                } else {
                    const int color = rank == round % 4 ? -1 : 5;
                    require(vescomm_comm_split(parent, color, 0, nullptr, &made), "split");
                }
                if (made != nullptr) {
                    const int ranks = kind == 0 ? 4 : kind == 3 ? 3 : 2;
                    expect(ranks_of(made) == ranks, "the number of ranks");
                    expect_sum(made, mine, static_cast<float>(ranks) * mine, 1 + random() % 3000);
                } else {
                    random();
                }
                if (made != nullptr) require(vescomm_comm_free(made), "free");
                if (round % 8 == 0) expect_sum(parent, mine, 4 * mine, 10);
            }
        });
        for (vescomm_comm_t *parent : parents) require(vescomm_comm_free(parent), "free");
        require(vescomm_comm_free(all), "free");
    });
}

TEST(SimultaneousCreation, DerivesFromTwoParentsOnOneNode) {
    derive(4);
}

TEST(SimultaneousCreation, DerivesFromTwoParentsOnTwoNodes) {
    derive(2);
}

}  // namespace
