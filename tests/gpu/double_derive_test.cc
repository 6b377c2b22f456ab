// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Communicators that the double of NCCL creates from others, and the rules that it checks: each
// mutation breaks one rule in work that is otherwise correct.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <thread>

#include "gpu/double_ranks.h"

namespace gpu_double {
namespace {

nccl::Result split(Rank &rank, int color, int key, nccl::Comm *child) {
    nccl::Config config;
    config.blocking = 1;
    return ncclCommSplit(rank.comm, color, key, child, &config);
}

nccl::Result shrink(Rank &rank, std::vector<int> excluded, nccl::Comm *child, int flags) {
    nccl::Config config;
    config.blocking = 1;
    return ncclCommShrink(rank.comm, excluded.data(), static_cast<int>(excluded.size()), child,
                          &config, flags);
}

float sum_on(Rank &rank, nccl::Comm comm, float value) {
    auto *one = rank.upload<float>({value});
    EXPECT_EQ(ncclAllReduce(one, one, 1, nccl::f32, nccl::sum, comm, rank.stream), 0);
    return rank.read(one, 1)[0];
}

void expect_place(nccl::Comm comm, int rank, int ranks) {
    int its_rank = -1, its_ranks = -1;
    EXPECT_EQ(ncclCommUserRank(comm, &its_rank), 0);
    EXPECT_EQ(ncclCommCount(comm, &its_ranks), 0);
    EXPECT_EQ(its_rank, rank);
    EXPECT_EQ(its_ranks, ranks);
}

// Runs a body in which a wait for another rank soon is a deadlock.
void run_impatient_ranks(int ranks, const std::function<void(Rank &)> &body) {
    setenv("GPU_DOUBLE_SECONDS", "1", 1);
    run_nccl_ranks(ranks, body);
    unsetenv("GPU_DOUBLE_SECONDS");
}

TEST(NcclDerivation, SplitsHaveTheRanksOfAColorInTheOrderOfTheirKeys) {
    for (const int ranks : {1, 2, 3, 4, 5}) {
        SCOPED_TRACE(ranks);
        run_nccl_ranks(ranks, [ranks](Rank &rank) {
            // Even ranks in the opposite order; odd ranks with equal keys; the last rank in none.
            const bool none = ranks > 2 && rank.number == ranks - 1;
            const int color = none ? nccl::no_color : rank.number % 2;
            nccl::Comm child = nullptr;
            ASSERT_EQ(split(rank, color, color == 0 ? -rank.number : 7, &child), 0);
            EXPECT_EQ(child == nullptr, none);
            std::vector<int> members;
            for (int other = 0; other < ranks - (ranks > 2 ? 1 : 0); ++other)
                if (other % 2 == color) members.push_back(other);
            if (color == 0) std::ranges::reverse(members);
            if (!none) {
                const auto at = std::ranges::find(members, rank.number) - members.begin();
                expect_place(child, static_cast<int>(at), static_cast<int>(members.size()));
                float sum = 0;
                for (const int member : members) sum += float(1 << member);
                EXPECT_EQ(sum_on(rank, child, float(1 << rank.number)), sum);
                EXPECT_EQ(ncclCommDestroy(child), 0);
            }
            EXPECT_EQ(sum_on(rank, rank.comm, 1), ranks) << "the parent still works";
        });
        EXPECT_EQ(take_violations(), "");
    }
}

TEST(NcclDerivation, ShrinksHaveTheOtherRanks) {
    for (const int ranks : {2, 3, 4, 5})
        for (int excluded = 0; excluded < ranks; ++excluded) {
            run_nccl_ranks(ranks, [ranks, excluded](Rank &rank) {
                if (rank.number != excluded) {
                    nccl::Comm child = nullptr;
                    ASSERT_EQ(shrink(rank, {excluded}, &child, nccl::shrink_default), 0);
                    expect_place(child, rank.number - (rank.number > excluded ? 1 : 0), ranks - 1);
                    EXPECT_EQ(sum_on(rank, child, 1), ranks - 1);
                    EXPECT_EQ(ncclCommDestroy(child), 0);
                }
                EXPECT_EQ(sum_on(rank, rank.comm, 1), ranks) << "the parent still works";
            });
            EXPECT_EQ(take_violations(), "");
        }
}

TEST(NcclDerivation, AnAbortingShrinkEndsTheWorkOfTheParent) {
    std::barrier<> all(3);
    run_nccl_ranks(3, [&](Rank &rank) {
        auto *data = rank.array<float>(1);
        if (rank.number == 1) kill_device(1);
        all.arrive_and_wait();
        if (rank.number != 1) {
            ncclAllReduce(data, data, 1, nccl::f32, nccl::sum, rank.comm, rank.stream);
            nccl::Comm child = nullptr;
            ASSERT_EQ(shrink(rank, {1}, &child, nccl::shrink_abort), 0);
            EXPECT_EQ(cudaStreamSynchronize(rank.stream), 0);
            EXPECT_EQ(sum_on(rank, child, 1), 2);
            EXPECT_EQ(ncclCommDestroy(child), 0);
        }
        all.arrive_and_wait();
        ncclCommAbort(std::exchange(rank.comm, nullptr));
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(NcclDerivation, ARevokedParentCanBeShrunk) {
    std::barrier<> all(3);
    run_nccl_ranks(3, [&](Rank &rank) {
        auto *data = rank.array<float>(1);
        all.arrive_and_wait();
        if (rank.number != 1) {
            ncclAllReduce(data, data, 1, nccl::f32, nccl::sum, rank.comm, rank.stream);
            EXPECT_EQ(ncclCommRevoke(rank.comm, 0), 0);
            EXPECT_EQ(cudaStreamSynchronize(rank.stream), 0) << "the revocation has ended the work";
            nccl::Comm child = nullptr;
            ASSERT_EQ(shrink(rank, {1}, &child, nccl::shrink_abort), 0);
            EXPECT_EQ(sum_on(rank, child, 1), 2);
            EXPECT_EQ(ncclCommDestroy(child), 0);
        }
        all.arrive_and_wait();
        ncclCommAbort(std::exchange(rank.comm, nullptr));
    });
    EXPECT_EQ(take_violations(), "");
}

// ---- mutations ----

TEST(NcclDerivation, FindsARankThatDoesNotCall) {
    run_impatient_ranks(3, [](Rank &rank) {
        nccl::Comm child = nullptr;
        if (rank.number != 1) {
            EXPECT_NE(split(rank, 0, 0, &child), 0);
        }
        EXPECT_EQ(child, nullptr);
    });
    EXPECT_THAT_VIOLATION("waits too long in ncclCommSplit.. for ranks .*1: a deadlock");
    run_impatient_ranks(3, [](Rank &rank) {
        nccl::Comm child = nullptr;
        if (rank.number == 0) {
            EXPECT_NE(shrink(rank, {1}, &child, nccl::shrink_default), 0);
        }
    });
    EXPECT_THAT_VIOLATION("rank 0 waits too long in ncclCommShrink.. for ranks 2: a deadlock");
}

TEST(NcclDerivation, FindsAnExcludedRankThatCalls) {
    run_nccl_ranks(2, [](Rank &rank) {
        nccl::Comm child = nullptr;
        const nccl::Result result = shrink(rank, {1}, &child, nccl::shrink_default);
        EXPECT_EQ(result == nccl::success, rank.number == 0);
        if (child != nullptr) ncclCommDestroy(child);
    });
    EXPECT_THAT_VIOLATION("rank 1 calls ncclCommShrink.., which excludes it");
}

TEST(NcclDerivation, FindsColorsThatAreNone) {
    run_nccl_ranks(1, [](Rank &rank) {
        nccl::Comm child = nullptr;
        EXPECT_EQ(split(rank, -2, 0, &child), nccl::invalid_argument);
    });
    EXPECT_THAT_VIOLATION("ncclCommSplit.. with color -2, which is neither a color nor");
}

TEST(NcclDerivation, FindsRanksThatDiffer) {
    // The order of the excluded ranks does not matter.
    run_nccl_ranks(4, [](Rank &rank) {
        nccl::Comm child = nullptr;
        const int first = rank.number == 0 ? 3 : 2;
        if (rank.number < 2) {
            EXPECT_EQ(shrink(rank, {first, 5 - first}, &child, nccl::shrink_default), 0);
            ncclCommDestroy(child);
        }
    });
    EXPECT_EQ(take_violations(), "");
    run_nccl_ranks(3, [](Rank &rank) {
        nccl::Comm child = nullptr;
        if (rank.number < 2) {
            EXPECT_NE(shrink(rank, {2}, &child, rank.number), 0);
        }
    });
    EXPECT_THAT_VIOLATION("ranks 0 and 1 make different calls: flags 0 and 1");
    run_nccl_ranks(4, [](Rank &rank) {
        nccl::Comm child = nullptr;
        if (rank.number < 2) {
            EXPECT_NE(shrink(rank, {rank.number + 2}, &child, nccl::shrink_default), 0);
        }
    });
    EXPECT_THAT_VIOLATION("make different calls: they exclude ranks 2 and ranks 3");
}

TEST(NcclDerivation, FindsOutstandingWork) {
    for (const bool splits : {true, false}) {
        std::atomic<bool> open{false};
        std::barrier<> both(2);
        run_nccl_ranks(2, [&](Rank &rank) {
            auto *data = rank.array<float>(1);
            launch(rank.stream, "kernel", {}, [&] { open.wait(false); });
            ncclAllReduce(data, data, 1, nccl::f32, nccl::sum, rank.comm, rank.stream);
            nccl::Comm child = nullptr;
            if (splits) split(rank, 0, 0, &child);
            else if (rank.number == 0) shrink(rank, {1}, &child, nccl::shrink_default);
            both.arrive_and_wait();
            open = true;
            open.notify_all();
            cudaStreamSynchronize(rank.stream);
            if (child != nullptr) ncclCommDestroy(child);
        });
        if (splits)
            EXPECT_THAT_VIOLATION("ncclCommSplit.. while the communicator has outstanding work");
        else
            EXPECT_THAT_VIOLATION(
                "ncclCommShrink.. without NCCL_SHRINK_ABORT while the "
                "communicator has outstanding work");
    }
}

TEST(NcclDerivation, FindsAShrinkWithoutAbortAfterAFailure) {
    std::barrier<> all(3);
    run_nccl_ranks(3, [&](Rank &rank) {
        if (rank.number == 2) kill_device(2);
        all.arrive_and_wait();
        nccl::Comm child = nullptr;
        if (rank.number != 2) shrink(rank, {2}, &child, nccl::shrink_default);
        if (child != nullptr) ncclCommDestroy(child);
    });
    EXPECT_THAT_VIOLATION("without NCCL_SHRINK_ABORT of a communicator with a failed rank");
}

TEST(NcclDerivation, FindsCallsOnARevokedCommunicator) {
    run_nccl_ranks(1, [](Rank &rank) {
        auto *data = rank.array<float>(1);
        EXPECT_EQ(ncclCommRevoke(rank.comm, 0), 0);
        EXPECT_EQ(ncclAllReduce(data, data, 1, nccl::f32, nccl::sum, rank.comm, rank.stream),
                  nccl::invalid_usage);
        EXPECT_THAT_VIOLATION("ncclAllReduce on a revoked communicator");
        EXPECT_NE(ncclCommRevoke(rank.comm, 0), 0);
        EXPECT_THAT_VIOLATION("ncclCommRevoke.. of a communicator that is revoked");
        EXPECT_NE(ncclCommFinalize(rank.comm), 0);
        EXPECT_THAT_VIOLATION("ncclCommFinalize.. of a revoked communicator");
        EXPECT_EQ(ncclCommAbort(std::exchange(rank.comm, nullptr)), 0);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(NcclDerivation, FindsAnAbortOfAParentInUse) {
    run_nccl_ranks(2, [](Rank &rank) {
        if (rank.number == 1) return;
        hold_call(0);
        const int before = calls_of("ncclCommSplit");
        std::thread splits([&] {
            nccl::Comm child = nullptr;
            EXPECT_NE(split(rank, 0, 0, &child), 0);
        });
        // The thread is in the call when it has taken the hold.
        while (calls_of("ncclCommSplit") == before) std::this_thread::yield();
        while (!is_deriving(rank.comm)) std::this_thread::yield();
        EXPECT_EQ(ncclCommAbort(rank.comm), 0);
        splits.join();
        rank.comm = nullptr;
    });
    EXPECT_THAT_VIOLATION("ncclCommAbort.. of a communicator while another thread creates one");
}

}  // namespace
}  // namespace gpu_double
