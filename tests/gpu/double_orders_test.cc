// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The double finds work of two streams of one device that is not ordered, in memory of all kinds.
#include <gtest/gtest.h>

#include <barrier>

#include "gpu/double_ranks.h"

namespace gpu_double {
namespace {

// A device with a second stream.
struct TwoStreams : Device {
    explicit TwoStreams(int number) : Device(number) {
        EXPECT_EQ(cudaStreamCreateWithFlags(&second, 1), 0);
        EXPECT_EQ(cudaEventCreateWithFlags(&event, 2), 0);
    }
    ~TwoStreams() {
        cudaStreamDestroy(second);
        cudaEventDestroy(event);
    }
    // Later work of the second stream follows the work of the first one so far.
    void order() const {
        EXPECT_EQ(cudaEventRecord(event, stream), 0);
        EXPECT_EQ(cudaStreamWaitEvent(second, event, 0), 0);
    }

    cuda::Stream second = nullptr;
    CUevent_st *event = nullptr;
};

// Runs the first work on one stream and the second work on the other one, and expects a violation
// unless an event orders them.
void expect_order(const std::function<void(cuda::Stream)> &first,
                  const std::function<void(cuda::Stream)> &second, TwoStreams &device,
                  const char *violation) {
    for (const bool ordered : {true, false}) {
        first(device.stream);
        if (ordered) device.order();
        second(device.second);
        EXPECT_EQ(cudaDeviceSynchronize(), 0);
        if (ordered) EXPECT_EQ(take_violations(), "");
        else EXPECT_THAT_VIOLATION(violation);
    }
}

// Mutation: a copy does not wait for the kernel that writes its source, or reads its target.
TEST(GpuDoubleOrders, FindsCopiesThatDoNotWaitForKernels) {
    SKIP_RACE_WITH_THREAD_SANITIZER();
    TwoStreams device(0);
    auto *memory = device.array<float>(1), *other = device.array<float>(1);
    expect_order(
        [&](cuda::Stream s) {
            launch(s, "writer", {{memory, 4, true}}, [] {});
        },
        [&](cuda::Stream s) { cudaMemcpyAsync(other, memory, 4, cuda::copy_device_to_device, s); },
        device, "cudaMemcpyAsync reads .* without a stream dependency on writer");
    expect_order(
        [&](cuda::Stream s) {
            launch(s, "reader", {{memory, 4, false}}, [] {});
        },
        [&](cuda::Stream s) { cudaMemcpyAsync(memory, other, 4, cuda::copy_device_to_device, s); },
        device, "cudaMemcpyAsync writes .* without a stream dependency on reader");
}

// Mutation: a copy to the device does not wait for the copy to the host. Pageable memory has no
// such rule: the host waits for its copies.
TEST(GpuDoubleOrders, FindsUnorderedCopiesOfPinnedMemory) {
    SKIP_RACE_WITH_THREAD_SANITIZER();
    TwoStreams device(0);
    void *pinned = nullptr;
    ASSERT_EQ(cudaHostAlloc(&pinned, 8, cuda::host_mapped), 0);
    auto *first = device.array<float>(2), *second = device.array<float>(2);
    expect_order(
        [&](cuda::Stream s) { cudaMemcpyAsync(pinned, first, 8, cuda::copy_device_to_host, s); },
        [&](cuda::Stream s) { cudaMemcpyAsync(second, pinned, 8, cuda::copy_host_to_device, s); },
        device, "cudaMemcpyAsync reads pinned memory without a stream dependency on cudaMemcpy");
    expect_order(
        [&](cuda::Stream s) {
            launch(s, "kernel", {{pinned, 4, true}}, [] {});
        },
        [&](cuda::Stream s) { cudaMemcpyAsync(second, pinned, 8, cuda::copy_host_to_device, s); },
        device, "cudaMemcpyAsync reads pinned memory without a stream dependency on kernel");
    // Other bytes are no conflict, nor is memory that has the address of freed memory.
    launch(device.stream, "kernel", {{pinned, 4, true}}, [] {});
    launch(device.second, "kernel", {{static_cast<char *>(pinned) + 4, 4, true}}, [] {});
    EXPECT_EQ(cudaDeviceSynchronize(), 0);
    EXPECT_EQ(take_violations(), "");
    EXPECT_EQ(cudaFreeHost(pinned), 0);
}

// Mutation: two streams of rank 0 write to the window of rank 1, and no event orders them.
TEST(NcclDoubleOrders, FindsUnorderedWritesToAWindowOfAnotherRank) {
    SKIP_RACE_WITH_THREAD_SANITIZER();
    std::barrier<> all(2);
    run_nccl_ranks(2, [&](Rank &rank) {
        const SharedMemory shared(rank, all);
        if (rank.number == 0) {
            TwoStreams device(0);
            auto *from = device.upload<float>({1});
            const auto put = [&](cuda::Stream s) {
                cudaMemcpyAsync(shared.peer, from, 4, cuda::copy_device_to_device, s);
            };
            expect_order(put, put, device,
                         "cudaMemcpyAsync writes .* of device 1 without a meeting after "
                         "cudaMemcpyAsync, .* on another device or stream");
        }
        all.arrive_and_wait();
        EXPECT_EQ(ncclCommWindowDeregister(rank.comm, shared.window), 0);
        EXPECT_EQ(ncclMemFree(shared.memory), 0);
    });
    EXPECT_EQ(take_violations(), "");
}

}  // namespace
}  // namespace gpu_double
