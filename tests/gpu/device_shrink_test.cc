// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Device communicators that are shrunk through NCCL, after a failure and without one.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "gpu/session_ranks.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using gpu_double::calls_of;
using gpu_double::fail_call;
using gpu_double::live_communicators;
using gpu_double::take_violations;

constexpr auto invalid = VESCOMM_ERROR_INVALID_ARGUMENT;

vescomm_gpu_comm_options_t shrinkable() {
    auto options = vescomm_gpu_comm_options_init();
    options.shrinkable = 1;
    options.workspace_bytes = 1 << 16;
    return options;
}

// Runs `body` on the ranks that survive the death of `victim`, with memory of vescomm_gpu_malloc().
// Their collective with the victim has failed by then.
void run_survivors(int ranks, int victim, const vescomm_gpu_comm_options_t &options,
                   const std::function<void(SessionRank &, void *memory)> &body,
                   double timeout_seconds = 60) {
    std::barrier<> all(ranks);
    run_session(
        ranks,
        [&](SessionRank &r) {
            void *memory = nullptr;
            ASSERT_EQ(r.create(&options), VESCOMM_OK) << vescomm_get_last_error();
            ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 4096, &memory), VESCOMM_OK);
            expect_values(r, r.gpu, r.comm);
            all.arrive_and_wait();
            if (r.rank == victim) gpu_double::kill_device(r.rank);
            all.arrive_and_wait();
            if (r.rank == victim) {
                vescomm_comm_abort(r.comm, "the process of the victim has ended");
            } else {
                auto *data = r.array<float>(1);
                vescomm_status_t status = vescomm_gpu_all_reduce(r.gpu, data, data, 1, VESCOMM_F32,
                                                                 VESCOMM_SUM, r.stream);
                if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
                expect_status(status, VESCOMM_ERROR_ABORTED, "the victim has ended");
                EXPECT_EQ(cudaStreamSynchronize(r.stream), 0) << "the work has ended";
                body(r, memory);
            }
            all.arrive_and_wait();  // the dead rank frees nothing before
        },
        timeout_seconds);
}

TEST(DeviceShrink, SurvivorsGiveTheirValues) {
    for (const int ranks : {2, 3, 4, 5})
        for (int victim = 0; victim < ranks; victim += ranks == 5 ? 2 : 1) {
            SCOPED_TRACE(testing::Message() << "rank " << victim << " of " << ranks << " dies");
            const int shrinks = calls_of("ncclCommShrink");
            const int creations = calls_of("ncclCommInitRankConfig");
            const auto options = shrinkable();
            run_survivors(ranks, victim, options, [&](SessionRank &r, void *) {
                vescomm_comm_t *comm = r.shrink_host({victim});
                vescomm_gpu_comm_t *gpu = nullptr;
                ASSERT_EQ(vescomm_gpu_comm_shrink(r.gpu, comm, &options, &gpu), VESCOMM_OK)
                    << vescomm_get_last_error();
                EXPECT_TRUE(is_derived(gpu));
                expect_values(r, gpu, comm);
                // The broken parent is freed before its child.
                EXPECT_EQ(vescomm_gpu_comm_free(r.gpu), VESCOMM_OK);
                r.gpu = nullptr;
                expect_values(r, gpu, comm);
                EXPECT_EQ(vescomm_gpu_comm_free(gpu), VESCOMM_OK);
                EXPECT_EQ(vescomm_comm_free(comm), VESCOMM_OK);
            });
            EXPECT_EQ(calls_of("ncclCommShrink") - shrinks, ranks - 1);
            EXPECT_EQ(calls_of("ncclCommInitRankConfig") - creations, ranks);
            EXPECT_EQ(take_violations(), "");
            EXPECT_EQ(live_communicators(), 0);
        }
}

TEST(DeviceShrink, RanksDieOneAfterAnother) {
    const auto options = shrinkable();
    std::barrier<> three(3);
    run_survivors(4, 1, options, [&](SessionRank &r, void *) {
        vescomm_comm_t *comm = r.shrink_host({1});
        vescomm_gpu_comm_t *gpu = nullptr;
        ASSERT_EQ(vescomm_gpu_comm_shrink(r.gpu, comm, &options, &gpu), VESCOMM_OK)
            << vescomm_get_last_error();
        // Now rank 3, which is rank 2 of the survivors.
        if (r.rank == 3) {
            gpu_double::kill_device(3);
            vescomm_comm_abort(comm, "rank 3 has ended");
        } else {
            while (vescomm_gpu_comm_check(gpu) == VESCOMM_OK) std::this_thread::yield();
            const std::int32_t failed = 2;
            vescomm_comm_t *two = nullptr;
            vescomm_gpu_comm_t *pair = nullptr;
            ASSERT_EQ(vescomm_comm_shrink(comm, &failed, 1, &two), VESCOMM_OK);
            ASSERT_EQ(vescomm_gpu_comm_shrink(gpu, two, nullptr, &pair), VESCOMM_OK)
                << vescomm_get_last_error();
            EXPECT_TRUE(is_derived(pair));
            expect_values(r, pair, two);
            EXPECT_EQ(vescomm_gpu_comm_free(pair), VESCOMM_OK);
            EXPECT_EQ(vescomm_comm_free(two), VESCOMM_OK);
        }
        three.arrive_and_wait();
        EXPECT_EQ(vescomm_gpu_comm_free(gpu), VESCOMM_OK);
        EXPECT_EQ(vescomm_comm_free(comm), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
    EXPECT_EQ(live_communicators(), 0);
}

TEST(DeviceShrink, WithoutAFailureTheParentStaysUsable) {
    run_session(4, [](SessionRank &r) {
        ASSERT_EQ(r.create(), VESCOMM_OK);
        vescomm_comm_t *comm = r.split_host(r.rank == 2 ? -1 : 0, 0);
        vescomm_gpu_comm_t *gpu = nullptr;
        std::atomic<bool> open{false};
        auto *data = r.array<float>(1);
        gpu_double::launch(r.stream, "kernel", {}, [&] { open.wait(false); });
        ASSERT_EQ(vescomm_gpu_all_reduce(r.gpu, data, data, 1, VESCOMM_F32, VESCOMM_SUM, r.stream),
                  VESCOMM_OK);
        std::thread opener([&] {
            open = true;
            open.notify_all();
        });
        if (comm != nullptr) {
            ASSERT_EQ(vescomm_gpu_comm_shrink(r.gpu, comm, nullptr, &gpu), VESCOMM_OK)
                << vescomm_get_last_error();
            EXPECT_TRUE(is_derived(gpu));
            expect_values(r, gpu, comm);
        }
        opener.join();
        expect_values(r, r.gpu, r.comm);
        EXPECT_EQ(vescomm_gpu_comm_free(gpu), VESCOMM_OK);
        EXPECT_EQ(vescomm_comm_free(comm), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
}

// ---- without ncclCommShrink() ----

// Expects a new communicator of the survivors of rank 1 of three.
void expect_new(const vescomm_gpu_comm_options_t &options,
                const std::function<void(SessionRank &, void *memory)> &before) {
    const int shrinks = calls_of("ncclCommShrink");
    run_survivors(3, 1, options, [&](SessionRank &r, void *memory) {
        before(r, memory);
        vescomm_comm_t *comm = r.shrink_host({1});
        vescomm_gpu_comm_t *gpu = nullptr;
        ASSERT_EQ(vescomm_gpu_comm_shrink(r.gpu, comm, nullptr, &gpu), VESCOMM_OK)
            << vescomm_get_last_error();
        EXPECT_FALSE(is_derived(gpu));
        expect_values(r, gpu, comm);
        EXPECT_EQ(vescomm_gpu_comm_free(gpu), VESCOMM_OK);
        EXPECT_EQ(vescomm_comm_free(comm), VESCOMM_OK);
    });
    EXPECT_EQ(calls_of("ncclCommShrink"), shrinks);
    EXPECT_EQ(take_violations(), "");
    EXPECT_EQ(live_communicators(), 0);
}

TEST(DeviceShrink, AnAbortedParentGivesANewCommunicator) {
    expect_new(vescomm_gpu_comm_options_init(), [](SessionRank &, void *) {});
}

TEST(DeviceShrink, MemoryThatIsFreedOnOneRankGivesANewCommunicator) {
    expect_new(shrinkable(), [](SessionRank &r, void *memory) {
        // NCCL's communicator is aborted before its memory is freed.
        if (r.rank == 2) {
            EXPECT_EQ(vescomm_gpu_mfree(r.gpu, memory), VESCOMM_OK);
        }
    });
}

TEST(DeviceShrink, AFailedRevocationGivesANewCommunicator) {
    fail_call("ncclCommRevoke", 1, nccl::internal_error);
    expect_new(shrinkable(), [](SessionRank &, void *) {});
    fail_call("", 0, 0);
}

TEST(DeviceShrink, NoMissingRankGivesANewCommunicator) {
    const auto options = shrinkable();
    std::barrier<> all(2);
    run_session(2, [&](SessionRank &r) {
        ASSERT_EQ(r.create(&options), VESCOMM_OK);
        all.arrive_and_wait();
        if (r.rank == 1) vescomm_comm_abort(r.comm, "rank 1 gives up");
        while (vescomm_gpu_comm_check(r.gpu) == VESCOMM_OK) std::this_thread::yield();
        vescomm_comm_t *comm = r.shrink_host({});
        vescomm_gpu_comm_t *gpu = nullptr;
        ASSERT_EQ(vescomm_gpu_comm_shrink(r.gpu, comm, nullptr, &gpu), VESCOMM_OK)
            << vescomm_get_last_error();
        EXPECT_FALSE(is_derived(gpu));
        expect_values(r, gpu, comm);
        EXPECT_EQ(vescomm_gpu_comm_free(gpu), VESCOMM_OK);
        EXPECT_EQ(vescomm_comm_free(comm), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
}

// ---- wrong arguments ----

TEST(DeviceShrink, AnotherOrderIsRefused) {
    run_session(3, [](SessionRank &r) {
        ASSERT_EQ(r.create(), VESCOMM_OK);
        vescomm_gpu_comm_t *out = nullptr;
        vescomm_comm_t *comm = r.split_host(r.rank == 1 ? -1 : 0, -r.rank);
        if (comm != nullptr) {
            expect_status(
                vescomm_gpu_comm_shrink(r.gpu, comm, nullptr, &out), invalid,
                "rank 1 of the survivors is rank 0 of 3 in its parent, after rank 2 of 3");
            auto options = vescomm_gpu_comm_options_init();
            options.nccl_comm = &options;
            expect_status(vescomm_gpu_comm_shrink(r.gpu, comm, &options, &out), invalid,
                          "nccl_comm is given");
            expect_status(vescomm_gpu_comm_shrink(nullptr, comm, nullptr, &out), invalid,
                          "parent is NULL");
            gpu_double::cudaSetDevice(7);
            expect_status(vescomm_gpu_comm_shrink(r.gpu, comm, nullptr, &out), invalid,
                          "failed on rank 0: vescomm_gpu_comm_shrink: the current device is 7");
            gpu_double::cudaSetDevice(r.rank);
        }
        EXPECT_EQ(out, nullptr);
        expect_values(r, r.gpu, r.comm);
        EXPECT_EQ(vescomm_comm_free(comm), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
}

// ---- failures ----

// A revoked communicator cannot be revoked again, so nothing ends the calls of NCCL: they stay in
// their threads, and the survivors shrink again.
TEST(DeviceShrink, CallsThatDoNotEndAreLeft) {
    const auto options = shrinkable();
    std::barrier<> two(2);
    setenv("GPU_DOUBLE_SECONDS", "4", 1);
    run_survivors(3, 1, options, [&](SessionRank &r, void *) {
        vescomm_comm_t *comm = r.shrink_host({1});
        vescomm_gpu_comm_t *gpu = nullptr;
        const int before = calls_of("ncclCommShrink");
        two.arrive_and_wait();
        gpu_double::hold_call(r.rank);
        two.arrive_and_wait();
        std::thread aborter;
        if (r.rank == 0)
            aborter = std::thread([&] {
                while (calls_of("ncclCommShrink") < before + 2) std::this_thread::yield();
                vescomm_comm_abort(comm, "a survivor gives up");
            });
        expect_status(vescomm_gpu_comm_shrink(r.gpu, comm, &options, &gpu), VESCOMM_ERROR_ABORTED,
                      "a survivor gives up");
        EXPECT_EQ(gpu, nullptr);
        if (aborter.joinable()) aborter.join();
        vescomm_comm_t *again = nullptr;
        ASSERT_EQ(vescomm_comm_shrink(comm, nullptr, 0, &again), VESCOMM_OK)
            << vescomm_get_last_error();
        ASSERT_EQ(vescomm_gpu_comm_shrink(r.gpu, again, &options, &gpu), VESCOMM_OK)
            << vescomm_get_last_error();
        EXPECT_FALSE(is_derived(gpu));
        expect_values(r, gpu, again);
        EXPECT_EQ(vescomm_gpu_comm_free(gpu), VESCOMM_OK);
        EXPECT_EQ(vescomm_comm_free(again), VESCOMM_OK);
        EXPECT_EQ(vescomm_comm_free(comm), VESCOMM_OK);
    });
    unsetenv("GPU_DOUBLE_SECONDS");
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceShrink, AFailureOfNcclIsAnError) {
    const auto options = shrinkable();
    run_survivors(2, 1, options, [&](SessionRank &r, void *) {
        vescomm_comm_t *comm = r.shrink_host({1});
        vescomm_gpu_comm_t *gpu = nullptr;
        fail_call("ncclCommShrink", 0, nccl::system_error);
        expect_status(vescomm_gpu_comm_shrink(r.gpu, comm, &options, &gpu), VESCOMM_ERROR_SYSTEM,
                      "ncclCommShrink() failed on rank 0");
        EXPECT_EQ(gpu, nullptr);
        EXPECT_EQ(vescomm_comm_free(comm), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceShrink, ADeathDuringTheCallIsAFailureOfThePeer) {
    const auto options = shrinkable();
    std::barrier<> three(3);
    run_survivors(
        4, 1, options,
        [&](SessionRank &r, void *) {
            vescomm_comm_t *comm = r.shrink_host({1});
            vescomm_gpu_comm_t *gpu = nullptr;
            const int before = calls_of("ncclCommShrink");
            three.arrive_and_wait();
            if (r.rank == 3) gpu_double::hold_call(3);
            three.arrive_and_wait();
            std::thread killer;
            if (r.rank == 3)
                killer = std::thread([&] {
                    while (calls_of("ncclCommShrink") < before + 3) std::this_thread::yield();
                    gpu_double::kill_device(3);
                });
            EXPECT_NE(vescomm_gpu_comm_shrink(r.gpu, comm, &options, &gpu), VESCOMM_OK);
            EXPECT_NE(std::string(vescomm_get_last_error()).find("ncclCommShrink() failed on rank"),
                      std::string::npos)
                << vescomm_get_last_error();
            if (killer.joinable()) killer.join();
            three.arrive_and_wait();
            if (r.rank != 3) {
                const std::int32_t failed = 2;
                vescomm_comm_t *rest = nullptr;
                ASSERT_EQ(vescomm_comm_shrink(comm, &failed, 1, &rest), VESCOMM_OK)
                    << vescomm_get_last_error();
                ASSERT_EQ(vescomm_gpu_comm_shrink(r.gpu, rest, nullptr, &gpu), VESCOMM_OK)
                    << vescomm_get_last_error();
                expect_values(r, gpu, rest);
                EXPECT_EQ(vescomm_gpu_comm_free(gpu), VESCOMM_OK);
                EXPECT_EQ(vescomm_comm_free(rest), VESCOMM_OK);
            }
            three.arrive_and_wait();
            EXPECT_EQ(vescomm_comm_free(comm), VESCOMM_OK);
        },
        5);
    EXPECT_EQ(take_violations(), "");
}

}  // namespace
}  // namespace vescomm::internal
