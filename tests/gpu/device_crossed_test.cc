// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Waits for a device that cross calls on host memory, and waits for work that never ends.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/session_ranks.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using gpu_double::take_violations;
using Seconds = std::chrono::duration<double>;

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return Seconds(std::chrono::steady_clock::now() - begin).count();
}

// Starts a sum of `count` elements, and waits for it.
vescomm_status_t sum(SessionRank &r, float *data, std::int64_t count) {
    const vescomm_status_t status =
        vescomm_gpu_all_reduce(r.gpu, data, data, count, VESCOMM_F32, VESCOMM_SUM, r.stream);
    return status == VESCOMM_OK ? vescomm_gpu_wait(r.gpu, r.stream) : status;
}

// All ranks but the last one wait for a sum, and the last one makes another call. Every rank gets a
// mismatch that names both calls, long before the deadline.
void expect_crossed(const std::function<vescomm_status_t(SessionRank &)> &call,
                    const std::string &name, const std::vector<int> &node) {
    const int ranks = static_cast<int>(node.size());
    run_session(
        ranks,
        [&](SessionRank &r) {
            ASSERT_EQ(r.create(), VESCOMM_OK) << vescomm_get_last_error();
            auto *data = r.array<float>(3);
            ASSERT_EQ(sum(r, data, 2), VESCOMM_OK) << vescomm_get_last_error();
            const auto begin = std::chrono::steady_clock::now();
            const bool last = r.rank == ranks - 1;
            expect_status(last ? call(r) : sum(r, data, 3), VESCOMM_ERROR_MISMATCH,
                          "all_reduce of 3 f32 (sum), call 2 on the device communicator");
            EXPECT_NE(std::string(vescomm_get_last_error()).find(name), std::string::npos)
                << vescomm_get_last_error();
            // 0.25 s, and what a busy machine takes.
            EXPECT_LT(seconds_since(begin), 5);
        },
        60, node);
    EXPECT_EQ(take_violations(), "");
}

vescomm_status_t barrier(SessionRank &r) {
    return vescomm_barrier(r.comm);
}

TEST(DeviceCrossed, AWaitForTheDeviceAndABarrier) {
    for (const int ranks : {2, 3})
        expect_crossed(barrier, "barrier", std::vector<int>(static_cast<std::size_t>(ranks)));
}

TEST(DeviceCrossed, AWaitForTheDeviceAndABarrierBetweenNodes) {
    expect_crossed(barrier, "barrier", {0, 1});
}

// An all-gather over the control plane asks no rank: the rank that waits for its device does.
TEST(DeviceCrossed, AWaitForTheDeviceAndACreation) {
    expect_crossed(
        [](SessionRank &r) {
            vescomm_comm_t *part = nullptr;
            return vescomm_comm_split(r.comm, 0, 0, nullptr, &part);
        },
        "split", {0, 0});
}

// Ranks that are late by more than a long wait make the same calls.
TEST(DeviceCrossed, ALateRankIsNoMismatch) {
    run_session(2, [&](SessionRank &r) {
        ASSERT_EQ(r.create(), VESCOMM_OK) << vescomm_get_last_error();
        auto *data = r.array<float>(3);
        for (int late = 0; late < 2; ++late) {
            if (r.rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(700));
            EXPECT_EQ(sum(r, data, 3), VESCOMM_OK) << vescomm_get_last_error();
            if (r.rank != late) std::this_thread::sleep_for(std::chrono::milliseconds(700));
            EXPECT_EQ(barrier(r), VESCOMM_OK) << vescomm_get_last_error();
        }
    });
    EXPECT_EQ(take_violations(), "");
}

// Rank 0 waits for a kernel of its own, and both have made the same calls on device memory.
TEST(DeviceCrossed, ALongKernelIsNoMismatch) {
    run_session(2, [&](SessionRank &r) {
        ASSERT_EQ(r.create(), VESCOMM_OK) << vescomm_get_last_error();
        auto *data = r.array<float>(3);
        EXPECT_EQ(sum(r, data, 3), VESCOMM_OK) << vescomm_get_last_error();
        if (r.rank == 0)
            gpu_double::launch(r.stream, "kernel", {},
                               [] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
        EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK) << vescomm_get_last_error();
        EXPECT_EQ(barrier(r), VESCOMM_OK) << vescomm_get_last_error();
    });
    EXPECT_EQ(take_violations(), "");
}

// The timeout is the bound of a wait, also for a kernel that never ends. The end of NCCL's
// communicator, which then waits for its own work behind the kernel, takes at most as long again.
TEST(DeviceWaits, EndAtTheTimeoutBesideAKernelThatNeverEnds) {
    constexpr double timeout = 1;
    for (const bool with_sum : {false, true}) {
        std::atomic<bool> ends{false};
        run_session(
            1,
            [&](SessionRank &r) {
                ASSERT_EQ(r.create(), VESCOMM_OK) << vescomm_get_last_error();
                auto *data = r.array<float>(3);
                gpu_double::launch(r.stream, "kernel", {}, [&] { ends.wait(false); });
                const auto begin = std::chrono::steady_clock::now();
                expect_status(with_sum ? sum(r, data, 3) : vescomm_gpu_wait(r.gpu, r.stream),
                              VESCOMM_ERROR_TIMEOUT,
                              "rank 0 waited for the work of a stream until its deadline");
                const double waited = seconds_since(begin);
                EXPECT_GE(waited, timeout - 0.01);
                EXPECT_LT(waited, (with_sum ? 2 : 1) * timeout + 0.9);
                ends = true;
                ends.notify_all();
                EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
            },
            timeout);
        EXPECT_EQ(take_violations(), "");
    }
}

}  // namespace
}  // namespace vescomm::internal
