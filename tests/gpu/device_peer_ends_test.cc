// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Failures while kernels of the method `peer` wait for other ranks, and NCCL for these kernels. The
// version of NCCL is that of device_peers_test.cc.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "api/gpu_handles.h"
#include "gpu/device_communicator.h"
#include "gpu/peer_links.h"
#include "gpu/test_buffer.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using gpu_double::live_communicators;
using gpu_double::take_violations;

TestBuffer peer_buffer(DeviceRank &r) {
    return {r, VectorLayout({4, 8, 12}), buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED)};
}

// Rank 2 of three gives up, while the others have a kernel that waits for it, a call of NCCL behind
// that, and are in a call of NCCL that does not return.
TEST(DevicePeerEnds, ACallThatConnectsEndsBehindAKernelThatWaits) {
    std::barrier<> all(3);
    run_devices(node_of_ranks(3), [&](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options("peer")), VESCOMM_OK);
        TestBuffer buffer = peer_buffer(r);
        auto *data = r.array<float>(1);
        const auto all_reduce = [&] {
            return vescomm_gpu_all_reduce(r.gpu, data, data, 1, VESCOMM_F32, VESCOMM_SUM, r.stream);
        };
        ASSERT_EQ(all_reduce(), VESCOMM_OK) << vescomm_get_last_error();
        ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
        if (r.rank == 2) {
            all.arrive_and_wait();
            r.parent.value->abort("rank 2 gives up");
            while (vescomm_gpu_comm_check(r.gpu) == VESCOMM_OK) std::this_thread::yield();
        } else {
            ASSERT_EQ(vescomm_gpu_buffer_all_gather_v(&buffer.handle, 1, r.stream), VESCOMM_OK);
            ASSERT_EQ(all_reduce(), VESCOMM_OK);
            gpu_double::hold_call(r.rank);
            all.arrive_and_wait();
            EXPECT_EQ(all_reduce(), VESCOMM_ERROR_ABORTED) << vescomm_get_last_error();
        }
        EXPECT_EQ(cudaStreamSynchronize(r.stream), 0) << "the kernels end";
        all.arrive_and_wait();
    });
    EXPECT_EQ(take_violations(), "");
}

// The thread of the program may be in a call of CUDA, which waits for the kernels.
TEST(DevicePeerEnds, KernelsEndWithoutACallOfTheProgram) {
    std::barrier<> all(3);
    run_devices(node_of_ranks(3), [&](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options("peer")), VESCOMM_OK);
        TestBuffer buffer = peer_buffer(r);
        all.arrive_and_wait();
        if (r.rank == 2) r.parent.value->abort("rank 2 gives up");
        else
            EXPECT_GE(vescomm_gpu_buffer_all_gather_v(&buffer.handle, 1, r.stream),
                      VESCOMM_ERROR_ABORTED);
        EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
        while (vescomm_gpu_comm_check(r.gpu) == VESCOMM_OK) std::this_thread::yield();
        all.arrive_and_wait();
    });
    EXPECT_EQ(take_violations(), "");
}

// The data of a rank whose wait was ended may be wrong: it meets the others no more.
TEST(DevicePeerEnds, AKernelWhoseWaitWasEndedDoesNotMeetTheOthersAgain) {
    std::barrier<> all(2);
    run_devices(hurried(node_of_ranks(2)), [&](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options("peer")), VESCOMM_OK);
        TestBuffer buffer(r, VectorLayout({4, 8}), buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
        all.arrive_and_wait();
        if (r.rank == 0) {
            ASSERT_EQ(vescomm_gpu_buffer_all_gather_v(&buffer.handle, 1, r.stream), VESCOMM_OK);
            ASSERT_EQ(vescomm_gpu_buffer_all_gather_v(&buffer.handle, 1, r.stream), VESCOMM_OK);
            EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_ERROR_TIMEOUT);
            EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
        }
        all.arrive_and_wait();
        if (r.rank == 1) {
            // The flag of rank 0 for block 0: it has come to one meeting.
            const PeerLinks *links = r.gpu->value->peer_links();
            EXPECT_EQ(r.read(links->barrier().flags[1], 1)[0], 1u);
            while (vescomm_gpu_comm_check(r.gpu) == VESCOMM_OK) std::this_thread::yield();
        }
        all.arrive_and_wait();
    });
    EXPECT_EQ(take_violations(), "");
}

// A revoked communicator of NCCL does not wait for graphs, which refer to it.
TEST(DevicePeerEnds, ARevokedCommunicatorOutlivesGraphs) {
    std::barrier<> all(2);
    const int before = live_communicators();
    run_devices(hurried(node_of_ranks(2)), [&](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options("peer")), VESCOMM_OK);
        TestBuffer buffer(r, VectorLayout({4, 8}), buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
        auto *data = r.array<float>(1);
        ASSERT_EQ(vescomm_gpu_buffer_all_gather_v(&buffer.handle, 1, r.stream), VESCOMM_OK);
        CUgraph_st *graph = nullptr;
        ASSERT_EQ(cudaStreamBeginCapture(r.stream, 1), 0);
        EXPECT_EQ(vescomm_gpu_all_reduce(r.gpu, data, data, 1, VESCOMM_F32, VESCOMM_SUM, r.stream),
                  VESCOMM_OK);
        ASSERT_EQ(cudaStreamEndCapture(r.stream, &graph), 0);
        ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK) << vescomm_get_last_error();
        all.arrive_and_wait();
        if (r.rank == 0) r.parent.value->abort("rank 0 gives up");
        while (vescomm_gpu_comm_check(r.gpu) == VESCOMM_OK) std::this_thread::yield();
        EXPECT_EQ(vescomm_gpu_comm_free(r.gpu), VESCOMM_OK) << vescomm_get_last_error();
        r.gpu = nullptr;
        all.arrive_and_wait();
        cudaGraphDestroy(graph);
    });
    EXPECT_EQ(take_violations(), "");
    EXPECT_EQ(live_communicators() - before, 2) << "they are leaked";
}

// Devices that cannot address one another's memory: no memory is freed that a capture forbids.
TEST(DevicePeerEnds, ACreationWithoutPeersKeepsACaptureValid) {
    setenv("GPU_DOUBLE_SYMMETRIC", "0", 1);
    std::barrier<> all(2);
    run_devices(node_of_ranks(2), [&](DeviceRank &r) {
        CUgraph_st *graph = nullptr;
        all.arrive_and_wait();
        ASSERT_EQ(cudaStreamBeginCapture(r.stream, 1), 0);
        all.arrive_and_wait();
        EXPECT_EQ(r.create(device_options()), VESCOMM_OK) << vescomm_get_last_error();
        all.arrive_and_wait();
        EXPECT_EQ(cudaStreamEndCapture(r.stream, &graph), 0);
        all.arrive_and_wait();
        cudaGraphDestroy(graph);
    });
    EXPECT_EQ(take_violations(), "");
    unsetenv("GPU_DOUBLE_SYMMETRIC");
}

}  // namespace
}  // namespace vescomm::internal
