// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Several communicators of the same processes: split, dup, concurrent creation, and shrink after a
// death. Ranks are processes that use the public API only.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "system/forked_ranks.h"

namespace {

using namespace forked_ranks;

// Counters that the processes of one test share.
struct Shared {
    std::atomic<int> arrived;
    std::atomic<int> wrong;
    std::atomic<int> refused;
    std::atomic<int> right;
    std::atomic<int> victim_ready;
};

TEST(Groups, SplitByColorInTheOrderOfKeys) {
    for (const int per_node : {6, 2}) {
        const Job job{6, per_node};
        run(job, [&](int rank) {
            vescomm_comm_t *all = nullptr, *part = nullptr, *half = nullptr;
            require(job.create(rank, nullptr, &all), "create");
            // Ranks 0, 2, 4 form a group in reverse order; 1, 3 form one in order; 5 is in none.
            const int color = rank == 5 ? -1 : rank % 2;
            require(vescomm_comm_split(all, color, color == 0 ? -rank : 7, nullptr, &part),
                    "split");
            if (color < 0) {
                expect(part == nullptr, "a communicator without a color");
            } else {
                expect(ranks_of(part) == (color == 0 ? 3 : 2), "number of ranks");
                expect(rank_of(part) == (color == 0 ? 2 - rank / 2 : rank / 2), "rank");
                expect_sum(part, static_cast<float>(rank), color == 0 ? 6 : 4);
                // Splits again. The parent is freed first.
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
        // Without sharing, 78 communicators exhausted 1,024 descriptors of rank 0.
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

// Two threads of each rank create a communicator each at the same time. The sums show if a
// communicator has ranks of different threads.
void create_at_once(bool tags) {
    const int rounds = tags ? 20 : 5;
    for (int round = 0; round < rounds; ++round) {
        const Job job{3, 3};
        Shared *shared = make_shared_page<Shared>();
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
                                       nullptr, nullptr, nullptr) != VESCOMM_OK)
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

TEST(Groups, ThreadsCanCreateConcurrentlyWithTags) {
    create_at_once(true);
}

TEST(Groups, ThreadsWithoutTagsAreNeverMixed) {
    create_at_once(false);
}

// Kills a rank between operations. The others shrink and continue.
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
                                       VESCOMM_MAX, nullptr, nullptr, nullptr) != VESCOMM_OK)
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

TEST(Groups, SurvivorsContinueAfterTheDeathOfAnyRank) {
    for (int victim = 0; victim < 4; ++victim) survive(4, 4, victim);
}

TEST(Groups, SurvivorsOnSeveralNodesContinue) {
    for (int victim = 0; victim < 5; ++victim) survive(5, 2, victim);
}

TEST(Groups, ShrinkCanExcludeALivingRank) {
    const Job job{3, 3};
    Shared *const page = make_shared_page<Shared>();
    run(job, [&](int rank) {
        vescomm_comm_t *comm = nullptr, *less = nullptr;
        require(job.create(rank, nullptr, &comm), "create");
        expect_sum(comm, 1, 3);
        // shrink() aborts running operations of rank 1, so all ranks must have completed theirs.
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

TEST(Groups, ShrinkRejectsInvalidRanks) {
    const Job job{1, 1};
    run(job, [&](int rank) {
        vescomm_comm_t *comm = nullptr, *less = nullptr;
        require(job.create(rank, nullptr, &comm), "create");
        for (const int32_t failed : {0, 1, -1})
            expect(vescomm_comm_shrink(comm, &failed, 1, &less) == VESCOMM_ERROR_INVALID_ARGUMENT,
                   "an invalid rank is rejected");
        require(vescomm_comm_shrink(comm, nullptr, 0, &less), "shrink");
        expect(ranks_of(less) == 1, "number of ranks");
        require(vescomm_comm_free(less), "free");
        require(vescomm_comm_free(comm), "free");
    });
}

}  // namespace
