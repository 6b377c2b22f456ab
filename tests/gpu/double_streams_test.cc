// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The double refuses streams and events of another device where CUDA and NCCL refuse them.
#include <gtest/gtest.h>

#include <atomic>
#include <utility>
#include <vector>

#include "gpu/double_ranks.h"

namespace gpu_double {
namespace {

constexpr cuda::Error invalid_handle = 400;

// Two devices; the second one is current.
struct TwoDevices {
    Device first{0}, second{1};
    ~TwoDevices() { EXPECT_EQ(cudaSetDevice(1), 0); }
};

// Mutation: cudaSetDevice() is missing.
TEST(GpuDoubleStreams, RefusesAKernelOnAStreamOfAnotherDevice) {
    TwoDevices devices;
    int runs = 0;
    EXPECT_EQ(launch(devices.first.stream, "kernel", {}, [&] { ++runs; }), invalid_handle);
    EXPECT_THAT_VIOLATION("kernel of device 1 on a stream of device 0");
    EXPECT_EQ(cudaGetLastError(), invalid_handle);
    ASSERT_EQ(cudaSetDevice(0), 0);
    EXPECT_EQ(launch(devices.first.stream, "kernel", {}, [&] { ++runs; }), cuda::success);
    EXPECT_EQ(cudaStreamSynchronize(devices.first.stream), 0);
    EXPECT_EQ(take_violations(), "");
    EXPECT_EQ(runs, 1);
}

// A capture begins on any stream, and its kernels need the device of the stream all the same.
TEST(GpuDoubleStreams, RefusesAKernelInACaptureOfAnotherDevice) {
    TwoDevices devices;
    CUgraph_st *graph = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(devices.first.stream, 1), 0);
    EXPECT_EQ(launch(devices.first.stream, "kernel", {}, [] {}), invalid_handle);
    EXPECT_THAT_VIOLATION("kernel of device 1 on a stream of device 0");
    EXPECT_EQ(cudaStreamEndCapture(devices.first.stream, &graph), 0);
    cudaGraphDestroy(graph);
    cudaGetLastError();
}

// CUDA accepts copies, waits and queries on the streams of all devices.
TEST(GpuDoubleStreams, CopiesNeedNoCurrentDevice) {
    TwoDevices devices;
    const std::vector<float> sent = {1, 2};
    auto *memory = devices.second.array<float>(2);
    EXPECT_EQ(
        cudaMemcpyAsync(memory, sent.data(), 8, cuda::copy_host_to_device, devices.first.stream),
        cuda::success);
    EXPECT_EQ(cudaStreamSynchronize(devices.first.stream), 0);
    EXPECT_EQ(cudaStreamQuery(devices.first.stream), 0);
    EXPECT_EQ(devices.second.read(memory, 2), sent);
    EXPECT_EQ(take_violations(), "");
}

// Mutation: the event belongs to another device than the stream that records it.
TEST(GpuDoubleStreams, RefusesToRecordAnEventOfAnotherDevice) {
    TwoDevices devices;
    CUevent_st *event = nullptr;
    ASSERT_EQ(cudaEventCreateWithFlags(&event, 2), 0);
    EXPECT_EQ(cudaEventRecord(event, devices.second.stream), 0);
    EXPECT_EQ(cudaStreamWaitEvent(devices.first.stream, event, 0), 0) << "any stream may wait";
    EXPECT_EQ(take_violations(), "");
    EXPECT_EQ(cudaEventRecord(event, devices.first.stream), invalid_handle);
    EXPECT_THAT_VIOLATION("event of device 1 on a stream of device 0");
    cudaGetLastError();
    cudaDeviceSynchronize();
    cudaEventDestroy(event);
}

// Mutation: a collective on a stream of another device than its communicator.
TEST(NcclDoubleStreams, RefusesAStreamOfAnotherDevice) {
    for (const bool grouped : {false, true}) {
        run_nccl_ranks(1, [grouped](Rank &rank) {
            auto *memory = rank.array<float>(1);
            cuda::Stream other = nullptr;
            ASSERT_EQ(cudaSetDevice(1), 0);
            ASSERT_EQ(cudaStreamCreateWithFlags(&other, 1), 0);
            ASSERT_EQ(cudaSetDevice(0), 0);
            if (grouped) ncclGroupStart();
            const nccl::Result called =
                ncclAllReduce(memory, memory, 1, nccl::f32, nccl::sum, rank.comm, other);
            EXPECT_EQ(grouped ? ncclGroupEnd() : called, nccl::unhandled_cuda_error);
            EXPECT_THAT_VIOLATION("ncclAllReduce.* of device 0 on a stream of device 1");
            EXPECT_EQ(
                ncclAllReduce(memory, memory, 1, nccl::f32, nccl::sum, rank.comm, rank.stream), 0);
            EXPECT_EQ(cudaStreamSynchronize(rank.stream), 0);
            EXPECT_EQ(take_violations(), "");
            cudaStreamDestroy(other);
            cudaGetLastError();
        });
    }
}

// take_violations() forgets the order of complete work, and of no other.
TEST(GpuDoubleStreams, WorkThatRunsIsNotForgotten) {
    Device device(0);
    cuda::Stream other = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&other, 1), 0);
    auto *memory = device.array<float>(1);
    const std::vector<Access> writes = {{memory, sizeof(float), true}};
    std::atomic<bool> open{false};
    launch(device.stream, "slow", writes, [&] { open.wait(false); });
    EXPECT_EQ(take_violations(), "");
    launch(other, "fast", writes, [] {});
    EXPECT_THAT_VIOLATION("fast writes .* without a stream dependency on slow");
    open = true;
    open.notify_all();
    ASSERT_EQ(cudaDeviceSynchronize(), 0);
    EXPECT_EQ(take_violations(), "");
    launch(other, "first", writes, [] {});
    launch(device.stream, "second", writes, [] {});
    EXPECT_THAT_VIOLATION("second writes .* without a stream dependency on first");
    ASSERT_EQ(cudaDeviceSynchronize(), 0);
    cudaStreamDestroy(other);
    EXPECT_EQ(take_violations(), "");
    EXPECT_EQ(launch(other, "late", writes, [] {}), invalid_handle);
    EXPECT_THAT_VIOLATION("which is destroyed");
    cudaGetLastError();
}

// Each device has a legacy stream.
TEST(NcclDoubleStreams, TheLegacyStreamIsThatOfTheCommunicator) {
    run_nccl_ranks(2, [](Rank &rank) {
        auto *memory = rank.upload<float>({1});
        EXPECT_EQ(ncclAllReduce(memory, memory, 1, nccl::f32, nccl::sum, rank.comm, nullptr), 0);
        EXPECT_EQ(cudaStreamSynchronize(nullptr), 0);
        EXPECT_EQ(rank.read(memory, 1)[0], 2);
    });
    EXPECT_EQ(take_violations(), "");
}

}  // namespace
}  // namespace gpu_double
