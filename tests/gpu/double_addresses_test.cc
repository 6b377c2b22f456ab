// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The double finds kernels on addresses that a device cannot access, and the device fails then, as
// a CUDA context does.
#include <gtest/gtest.h>

#include "gpu/double_ranks.h"

namespace gpu_double {
namespace {

constexpr cuda::Error illegal_address = 700;

// Mutation: host memory that is not pinned.
TEST(GpuDoubleAddresses, FindsAKernelOnHostMemory) {
    Device device(0);
    void *pinned = nullptr;
    ASSERT_EQ(cudaHostAlloc(&pinned, 8, cuda::host_mapped), 0);
    std::vector<float> plain(2);
    int runs = 0;
    for (const bool right : {true, false}) {
        void *memory = right ? pinned : plain.data();
        EXPECT_EQ(launch(device.stream, "kernel", {{memory, 8, true}}, [&] { ++runs; }), 0)
            << "the error is asynchronous";
        EXPECT_EQ(cudaStreamSynchronize(device.stream), right ? cuda::success : illegal_address);
        if (right) {
            EXPECT_EQ(take_violations(), "");
        }
    }
    EXPECT_EQ(runs, 1);
    EXPECT_EQ(cudaDeviceSynchronize(), illegal_address) << "the error stays";
    EXPECT_EQ(cudaStreamQuery(device.stream), illegal_address);
    EXPECT_EQ(launch(device.stream, "later kernel", {}, [] {}), illegal_address);
    void *more = nullptr;
    EXPECT_EQ(cudaMalloc(&more, 8), illegal_address);
    EXPECT_THAT_VIOLATION("^kernel writes host memory that is not pinned\n$");
    EXPECT_EQ(cudaDeviceSynchronize(), 0) << "the next test has a new device";
    cudaGetLastError();
    EXPECT_EQ(cudaFreeHost(pinned), 0);
    // Mutation: the end of the pinned memory, and its end of life, are missed.
    ASSERT_EQ(cudaHostAlloc(&pinned, 8, cuda::host_mapped), 0);
    launch(device.stream, "kernel", {{pinned, 9, false}}, [] {});
    cudaStreamSynchronize(device.stream);
    EXPECT_THAT_VIOLATION("kernel reads host memory that is not pinned");
    EXPECT_EQ(cudaFreeHost(pinned), 0);
    launch(device.stream, "kernel", {{pinned, 8, false}}, [] {});
    cudaStreamSynchronize(device.stream);
    EXPECT_THAT_VIOLATION("kernel reads host memory that is not pinned");
    cudaGetLastError();
}

// Work that follows the kernel does not run, although CUDA has accepted it.
TEST(GpuDoubleAddresses, ADeviceThatHasFailedRunsNoWork) {
    Device device(0);
    std::atomic<bool> started{false};
    float plain = 0;
    int runs = 0;
    launch(device.stream, "first", {}, [&] { started.wait(false); });
    EXPECT_EQ(launch(device.stream, "kernel", {{&plain, 4, true}}, [&] { ++runs; }), 0);
    EXPECT_EQ(launch(device.stream, "later kernel", {}, [&] { ++runs; }), 0);
    started = true;
    started.notify_all();
    EXPECT_EQ(cudaStreamSynchronize(device.stream), illegal_address);
    EXPECT_EQ(runs, 0);
    EXPECT_THAT_VIOLATION("^kernel writes host memory that is not pinned\n$");
    cudaGetLastError();
}

// Copies accept all memory.
TEST(GpuDoubleAddresses, CopiesAcceptHostMemoryAndMemoryOfOtherDevices) {
    Device first(0), second(1);
    auto *to = second.array<float>(2);
    ASSERT_EQ(cudaSetDevice(0), 0);
    auto *from = first.upload<float>({1, 2});
    EXPECT_EQ(cudaMemcpyAsync(to, from, 8, cuda::copy_device_to_device, first.stream), 0);
    ASSERT_EQ(cudaSetDevice(1), 0);
    EXPECT_EQ(cudaStreamSynchronize(first.stream), 0);
    EXPECT_EQ(second.read(to, 2), (std::vector<float>{1, 2}));
    EXPECT_EQ(take_violations(), "");
}

// Mutation: a kernel reads memory of cudaMalloc() of another device.
TEST(GpuDoubleAddresses, FindsAKernelOnMemoryOfAnotherDevice) {
    Device first(0), second(1);
    auto *memory = second.array<float>(1);
    EXPECT_EQ(launch(second.stream, "kernel", {{memory, 4, false}}, [] {}), 0);
    EXPECT_EQ(cudaStreamSynchronize(second.stream), 0);
    EXPECT_EQ(take_violations(), "");
    ASSERT_EQ(cudaSetDevice(0), 0);
    EXPECT_EQ(launch(first.stream, "kernel", {{memory, 4, false}}, [] {}), 0);
    EXPECT_EQ(cudaStreamSynchronize(first.stream), illegal_address);
    EXPECT_EQ(cudaStreamSynchronize(second.stream), 0) << "the other device works";
    EXPECT_THAT_VIOLATION("kernel reads allocation .* of device 1, which device 0 cannot access");
    ASSERT_EQ(cudaSetDevice(1), 0);
    cudaGetLastError();
}

// The device fails when the graph is launched, not when it is captured.
TEST(GpuDoubleAddresses, FindsACapturedKernelOnHostMemory) {
    Device device(0);
    float plain = 0;
    CUgraph_st *graph = nullptr;
    CUgraphExec_st *exec = nullptr;
    ASSERT_EQ(cudaStreamBeginCapture(device.stream, 1), 0);
    launch(device.stream, "kernel", {{&plain, 4, true}}, [] {});
    ASSERT_EQ(cudaStreamEndCapture(device.stream, &graph), 0);
    ASSERT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), 0);
    EXPECT_EQ(take_violations(), "");
    EXPECT_EQ(cudaGraphLaunch(exec, device.stream), 0);
    EXPECT_EQ(cudaStreamSynchronize(device.stream), illegal_address);
    EXPECT_EQ(cudaGraphLaunch(exec, device.stream), illegal_address);
    EXPECT_THAT_VIOLATION("kernel writes host memory that is not pinned");
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaGetLastError();
}

// NCCL checks no pointers, unless NCCL_CHECK_POINTERS asks for it: its kernel fails. Mutation: host
// memory that is not pinned.
TEST(NcclDoubleAddresses, FindsACollectiveOnHostMemory) {
    run_nccl_ranks(1, [](Rank &rank) {
        void *pinned = nullptr;
        ASSERT_EQ(cudaHostAlloc(&pinned, 4, cuda::host_mapped), 0);
        *static_cast<float *>(pinned) = 3;
        auto *memory = rank.array<float>(1);
        EXPECT_EQ(ncclAllReduce(pinned, memory, 1, nccl::f32, nccl::sum, rank.comm, rank.stream),
                  0);
        EXPECT_EQ(rank.read(memory, 1)[0], 3);
        EXPECT_EQ(take_violations(), "");
        float plain = 3;
        EXPECT_EQ(ncclAllReduce(&plain, memory, 1, nccl::f32, nccl::sum, rank.comm, rank.stream),
                  0);
        EXPECT_EQ(cudaStreamSynchronize(rank.stream), illegal_address);
        EXPECT_EQ(ncclAllReduce(memory, memory, 1, nccl::f32, nccl::sum, rank.comm, rank.stream),
                  nccl::unhandled_cuda_error);
        EXPECT_THAT_VIOLATION("ncclAllReduce.* reads host memory that is not pinned");
        cudaGetLastError();
        EXPECT_EQ(cudaFreeHost(pinned), 0);
    });
}

// Mutation: a collective on memory of the device of another rank.
TEST(NcclDoubleAddresses, FindsACollectiveOnMemoryOfAnotherDevice) {
    run_nccl_ranks(1, [](Rank &rank) {
        void *memory = nullptr;
        ASSERT_EQ(cudaSetDevice(1), 0);
        ASSERT_EQ(cudaMalloc(&memory, 4), 0);
        ASSERT_EQ(cudaSetDevice(0), 0);
        EXPECT_EQ(ncclAllReduce(memory, memory, 1, nccl::f32, nccl::sum, rank.comm, rank.stream),
                  0);
        EXPECT_EQ(cudaStreamSynchronize(rank.stream), illegal_address);
        EXPECT_THAT_VIOLATION("ncclAllReduce.* of device 1, which device 0 cannot access");
        cudaGetLastError();
        EXPECT_EQ(cudaFree(memory), 0);
    });
}

}  // namespace
}  // namespace gpu_double
