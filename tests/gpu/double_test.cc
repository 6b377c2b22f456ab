// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The test double obeys the libraries that it stands for, and finds broken rules: each mutation
// breaks one rule in work that is otherwise correct.
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <thread>

#include "gpu/double_ranks.h"

namespace gpu_double {
namespace {

TEST(GpuDouble, CopiesInTheOrderOfAStream) {
    Device device(0);
    const std::vector<float> sent = {1, 2, 3};
    auto *memory = device.array<float>(3);
    EXPECT_EQ(cudaMemcpyAsync(memory, sent.data(), 12, cuda::copy_host_to_device, device.stream),
              0);
    EXPECT_EQ(device.read(memory, 3), sent);
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuDouble, HostCannotAccessDeviceMemory) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            Device device(0);
            volatile float *memory = device.array<float>(1);
            *memory = 1;
        },
        "");
}

// Mutation: no event between two streams.
TEST(GpuDouble, FindsAMissingStreamDependency) {
    for (const bool ordered : {true, false}) {
        Device device(0);
        cuda::Stream second = nullptr;
        CUevent_st *event = nullptr;
        ASSERT_EQ(cudaStreamCreateWithFlags(&second, 1), 0);
        ASSERT_EQ(cudaEventCreateWithFlags(&event, 2), 0);
        auto *memory = device.array<float>(4);
        cudaMemsetAsync(memory, 0, 16, device.stream);
        cudaEventRecord(event, device.stream);
        if (ordered) cudaStreamWaitEvent(second, event, 0);
        launch(second, "kernel", {{memory, 16, false}}, [] {});
        cudaDeviceSynchronize();
        if (ordered) {
            EXPECT_EQ(take_violations(), "");
        } else
            EXPECT_THAT_VIOLATION("kernel reads .* without a stream dependency on cudaMemsetAsync");
        cudaStreamDestroy(second);
        cudaEventDestroy(event);
    }
}

TEST(GpuDouble, AWaitOfTheHostOrdersStreams) {
    SKIP_RACE_WITH_THREAD_SANITIZER();
    Device device(0);
    cuda::Stream second = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&second, 1), 0);
    auto *memory = device.array<float>(4);
    cudaMemsetAsync(memory, 0, 16, device.stream);
    cudaStreamSynchronize(device.stream);
    cudaMemsetAsync(memory, 1, 16, second);
    cudaStreamSynchronize(second);
    EXPECT_EQ(take_violations(), "");
    cudaMemsetAsync(memory, 2, 8, device.stream);
    cudaMemsetAsync(memory + 2, 2, 8, second);  // other bytes: no conflict
    cudaMemsetAsync(memory + 1, 3, 4, second);  // mutation: the same bytes
    cudaDeviceSynchronize();
    EXPECT_THAT_VIOLATION("without a stream dependency");
    cudaStreamDestroy(second);
}

TEST(GpuDouble, TheLegacyStreamIsOrderedWithBlockingStreams) {
    SKIP_RACE_WITH_THREAD_SANITIZER();
    Device device(0);
    cuda::Stream blocking = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&blocking, 0), 0);
    auto *memory = device.array<float>(4);
    cudaMemsetAsync(memory, 0, 16, blocking);
    cudaMemsetAsync(memory, 0, 16, nullptr);
    cudaMemsetAsync(memory, 0, 16, blocking);
    cudaDeviceSynchronize();
    EXPECT_EQ(take_violations(), "");
    cudaMemsetAsync(memory, 0, 16, nullptr);
    cudaMemsetAsync(memory, 0, 16, device.stream);  // does not block
    cudaDeviceSynchronize();
    EXPECT_THAT_VIOLATION("without a stream dependency");
    cudaStreamDestroy(blocking);
}

TEST(GpuDouble, FindsUseAfterFreeAndOverruns) {
    Device device(0);
    void *memory = nullptr;
    ASSERT_EQ(cudaMalloc(&memory, 100), 0);
    cudaMemsetAsync(memory, 0, 101, device.stream);
    cudaDeviceSynchronize();
    EXPECT_THAT_VIOLATION("writes bytes 0 to 101 of allocation .* of 100 bytes");
    ASSERT_EQ(cudaFree(memory), 0);
    cudaMemsetAsync(memory, 0, 1, device.stream);
    cudaDeviceSynchronize();
    EXPECT_THAT_VIOLATION("which is freed");
    EXPECT_NE(cudaFree(memory), 0);
    EXPECT_THAT_VIOLATION("freed twice");
}

TEST(GpuDouble, InjectedFailuresHappenOnce) {
    Device device(0);
    void *memory = nullptr;
    fail_call("cudaMalloc", 1, cuda::memory_allocation);
    EXPECT_EQ(cudaMalloc(&memory, 1), cuda::success);
    cudaFree(memory);
    EXPECT_EQ(cudaMalloc(&memory, 1), cuda::memory_allocation);
    EXPECT_EQ(cudaMalloc(&memory, 1), cuda::success);
    cudaFree(memory);
    EXPECT_EQ(take_violations(), "");
}

// ---- graphs ----

TEST(GpuDouble, GraphsReplayWorkOfSeveralStreams) {
    Device device(0);
    cuda::Stream second = nullptr;
    CUevent_st *fork = nullptr, *join = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&second, 1), 0);
    ASSERT_EQ(cudaEventCreateWithFlags(&fork, 2), 0);
    ASSERT_EQ(cudaEventCreateWithFlags(&join, 2), 0);
    auto *memory = device.array<float>(1);
    cudaMemsetAsync(memory, 0, 4, device.stream);
    for (const bool ordered : {true, false}) {
        const auto add_one = [memory] { *static_cast<float *>(host_view(memory)) += 1; };
        CUgraph_st *graph = nullptr;
        CUgraphExec_st *exec = nullptr;
        ASSERT_EQ(cudaStreamBeginCapture(device.stream, 1), 0);
        cudaEventRecord(fork, device.stream);
        if (ordered) launch(device.stream, "first", {{memory, 4, true}}, add_one);
        if (ordered) cudaEventRecord(fork, device.stream);
        cudaStreamWaitEvent(second, fork, 0);
        if (!ordered) launch(device.stream, "first", {{memory, 4, true}}, add_one);
        launch(second, "second", {{memory, 4, true}}, add_one);
        cudaEventRecord(join, second);
        cudaStreamWaitEvent(device.stream, join, 0);
        ASSERT_EQ(cudaStreamEndCapture(device.stream, &graph), 0);
        ASSERT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), 0);
        if (ordered) {
            EXPECT_EQ(device.read(memory, 1)[0], 0) << "captured work does not run";
        }
        cudaGraphLaunch(exec, device.stream);
        cudaGraphLaunch(exec, device.stream);
        cudaDeviceSynchronize();
        if (ordered) {
            EXPECT_EQ(take_violations(), "");
            EXPECT_EQ(device.read(memory, 1)[0], 4);
        } else EXPECT_THAT_VIOLATION("second writes .* without a stream dependency on first");
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(graph);
    }
    cudaStreamDestroy(second);
    cudaEventDestroy(fork);
    cudaEventDestroy(join);
}

TEST(GpuDouble, FindsCallsThatACaptureForbids) {
    Device device(0);
    cuda::Stream other = nullptr;
    CUevent_st *outside = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&other, 1), 0);
    ASSERT_EQ(cudaEventCreateWithFlags(&outside, 2), 0);
    cudaEventRecord(outside, other);
    CUgraph_st *graph = nullptr;
    void *memory = nullptr;
    const auto forbidden = [&](const std::function<int()> &call, int error, const char *what) {
        ASSERT_EQ(cudaStreamBeginCapture(device.stream, 1), 0);
        EXPECT_EQ(call(), error);
        EXPECT_NE(cudaStreamEndCapture(device.stream, &graph), 0);
        EXPECT_THAT_VIOLATION(what);
    };
    forbidden([&] { return cudaStreamSynchronize(device.stream); }, 900, "that is captured");
    forbidden([&] { return cudaStreamSynchronize(other); }, 900, "during the capture");
    forbidden([&] { return cudaMalloc(&memory, 1); }, 900, "during the capture");
    forbidden([&] { return cudaStreamWaitEvent(device.stream, outside, 0); }, 905, "across");
    forbidden([] { return cudaDeviceSynchronize(); }, 900, "a wait for the device during");
    cudaStreamDestroy(other);
    cudaEventDestroy(outside);
}

// The relaxed mode of a thread permits what does not touch the capture itself.
TEST(GpuDouble, RelaxedThreadsMayMakeUnsafeCalls) {
    Device device(0);
    CUgraph_st *graph = nullptr;
    void *memory = nullptr;
    int mode = cuda::capture_mode_relaxed;
    ASSERT_EQ(cudaStreamBeginCapture(device.stream, 0), 0);
    EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), 0);
    EXPECT_EQ(mode, 0);
    EXPECT_EQ(cudaMalloc(&memory, 1), 0);
    EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), 0);
    std::thread([] {
        void *none = nullptr;
        EXPECT_EQ(cudaMalloc(&none, 1), cuda::capture_unsupported) << "the capture is global";
    }).join();
    EXPECT_NE(cudaStreamEndCapture(device.stream, &graph), 0);
    EXPECT_THAT_VIOLATION("cudaMalloc.. during the capture of a graph");
    cudaFree(memory);
}

TEST(GpuDouble, TheLegacyStreamDependsOnCapturedStreams) {
    Device device(0);
    cuda::Stream blocking = nullptr;
    CUgraph_st *graph = nullptr;
    int status = 0;
    ASSERT_EQ(cudaStreamCreateWithFlags(&blocking, 0), 0);
    auto *memory = device.array<float>(1);
    ASSERT_EQ(cudaStreamBeginCapture(blocking, 2), 0);
    EXPECT_EQ(cudaStreamIsCapturing(nullptr, &status), cuda::capture_implicit);
    ASSERT_EQ(cudaStreamEndCapture(blocking, &graph), 0);
    cudaGraphDestroy(graph);
    ASSERT_EQ(cudaStreamBeginCapture(blocking, 2), 0);
    EXPECT_EQ(cudaMemsetAsync(memory, 0, 4, nullptr), cuda::capture_implicit);
    EXPECT_NE(cudaStreamEndCapture(blocking, &graph), 0);
    EXPECT_THAT_VIOLATION("work on the legacy stream during the capture");
    cudaStreamDestroy(blocking);
}

TEST(GpuDouble, ErrorsStayUntilTheyAreRead) {
    Device device(0);
    cudaGetLastError();  // of an earlier test
    EXPECT_EQ(cudaSetDevice(99), 101);
    int number = -1;
    EXPECT_EQ(cudaGetDevice(&number), 0);
    EXPECT_EQ(cudaGetLastError(), 101);
    EXPECT_EQ(cudaGetLastError(), 0);
}

// ---- collectives ----

constexpr int rank_counts[] = {1, 2, 3, 5, 7};

TEST(NcclDouble, CollectivesGiveTheirResults) {
    for (const int ranks : rank_counts) {
        SCOPED_TRACE(ranks);
        run_nccl_ranks(ranks, [ranks](Rank &rank) {
            const auto n = static_cast<std::size_t>(ranks);
            const float r = static_cast<float>(rank.number);
            const float all = static_cast<float>(ranks * (ranks - 1)) / 2;
            auto *one = rank.upload<float>({r, r + 1});
            auto *many = rank.array<float>(2 * n);
            cudaMemsetAsync(many, 0, 8 * n, rank.stream);

            ASSERT_EQ(ncclAllGather(one, many, 2, nccl::f32, rank.comm, rank.stream), 0);
            std::vector<float> gathered;
            for (int k = 0; k < ranks; ++k)
                gathered.insert(gathered.end(), {float(k), float(k + 1)});
            EXPECT_EQ(rank.read(many, 2 * n), gathered);

            ASSERT_EQ(ncclReduceScatter(many, one, 2, nccl::f32, nccl::sum, rank.comm, rank.stream),
                      0);
            EXPECT_EQ(rank.read(one, 2),
                      (std::vector<float>{float(ranks) * r, float(ranks) * (r + 1)}));

            one = rank.upload<float>({r, 1});
            ASSERT_EQ(ncclAllReduce(one, one, 2, nccl::f32, nccl::sum, rank.comm, rank.stream), 0);
            EXPECT_EQ(rank.read(one, 2), (std::vector<float>{all, float(ranks)}));
            one = rank.upload<float>({r, 1});
            ASSERT_EQ(ncclAllReduce(one, one, 2, nccl::f32, nccl::max, rank.comm, rank.stream), 0);
            EXPECT_EQ(rank.read(one, 2), (std::vector<float>{float(ranks - 1), 1}));

            auto *halves = rank.upload<std::uint16_t>({0x3f80, 0x4000});  // bf16: 1, 2
            ASSERT_EQ(
                ncclAllReduce(halves, halves, 2, nccl::bf16, nccl::average, rank.comm, rank.stream),
                0);
            EXPECT_EQ(rank.read(halves, 2), (std::vector<std::uint16_t>{0x3f80, 0x4000}));
            halves = rank.upload<std::uint16_t>({0x3c00, 0x0001});  // f16: 1, the least one
            ASSERT_EQ(
                ncclAllReduce(halves, halves, 2, nccl::f16, nccl::min, rank.comm, rank.stream), 0);
            EXPECT_EQ(rank.read(halves, 2), (std::vector<std::uint16_t>{0x3c00, 0x0001}));

            const int root = ranks - 1;
            one = rank.upload<float>({r, r});
            ASSERT_EQ(ncclBroadcast(one, one, 2, nccl::f32, root, rank.comm, rank.stream), 0);
            EXPECT_EQ(rank.read(one, 1)[0], float(root));
            one = rank.upload<float>({r});
            ASSERT_EQ(ncclReduce(one, one, 1, nccl::f32, nccl::sum, root, rank.comm, rank.stream),
                      0);
            EXPECT_EQ(rank.read(one, 1)[0], rank.number == root ? all : r);

            // A ring of messages; it needs the group.
            auto *from = rank.upload<float>({r});
            auto *to = rank.array<float>(1);
            ncclGroupStart();
            ncclSend(from, 1, nccl::f32, (rank.number + 1) % ranks, rank.comm, rank.stream);
            ncclRecv(to, 1, nccl::f32, (rank.number + ranks - 1) % ranks, rank.comm, rank.stream);
            ASSERT_EQ(ncclGroupEnd(), 0);
            EXPECT_EQ(rank.read(to, 1)[0], float((rank.number + ranks - 1) % ranks));
        });
        EXPECT_EQ(take_violations(), "");
    }
}

// Mutation: one rank passes another count.
TEST(NcclDouble, FindsAWrongCount) {
    run_nccl_ranks(3, [](Rank &rank) {
        auto *memory = rank.array<float>(6);
        const std::size_t count = rank.number == 1 ? 1 : 2;
        EXPECT_EQ(
            ncclAllReduce(memory, memory, count, nccl::f32, nccl::sum, rank.comm, rank.stream), 0);
        cudaStreamSynchronize(rank.stream);
        nccl::Result error = 0;
        ncclCommGetAsyncError(rank.comm, &error);
        EXPECT_EQ(error, nccl::internal_error);
    });
    EXPECT_THAT_VIOLATION("ranks 0 and 1 make different calls: ncclAllReduce.2 .*ncclAllReduce.1 ");
}

// Mutation: two ranks issue two collectives in another order.
TEST(NcclDouble, FindsAnotherOrder) {
    run_nccl_ranks(2, [](Rank &rank) {
        auto *memory = rank.array<float>(2);
        for (int i = 0; i < 2; ++i) {
            if ((i == 0) == (rank.number == 0))
                ncclBroadcast(memory, memory, 1, nccl::f32, 0, rank.comm, rank.stream);
            else ncclAllReduce(memory, memory, 1, nccl::f32, nccl::sum, rank.comm, rank.stream);
            if (i == 0) cudaStreamSynchronize(rank.stream);
        }
        cudaStreamSynchronize(rank.stream);
    });
    EXPECT_THAT_VIOLATION("different calls: ncclBroadcast.*ncclAllReduce");
}

// Mutation: ncclGroupEnd() is missing.
TEST(NcclDouble, FindsAMissingGroupEnd) {
    run_nccl_ranks(2, [](Rank &rank) {
        auto *memory = rank.array<float>(1);
        ncclGroupStart();
        ncclAllReduce(memory, memory, 1, nccl::f32, nccl::sum, rank.comm, rank.stream);
        cudaStreamSynchronize(rank.stream);
        ncclGroupEnd();
        cudaStreamSynchronize(rank.stream);
    });
    EXPECT_THAT_VIOLATION("cudaStreamSynchronize.*: a wait within an open group");
    std::thread([] { ncclGroupStart(); }).join();
    EXPECT_THAT_VIOLATION("a thread ends within an open group");
    EXPECT_EQ(ncclGroupEnd(), nccl::invalid_usage);
    EXPECT_THAT_VIOLATION("without ncclGroupStart");
}

// Mutation: one rank does not register its buffer.
TEST(NcclDouble, FindsAnUnregisteredBuffer) {
    for (const bool all : {true, false}) {
        run_nccl_ranks(2, [all](Rank &rank) {
            void *memory = nullptr;
            nccl::Window window = nullptr;
            ASSERT_EQ(ncclMemAlloc(&memory, 8192), 0);
            const bool registers = all || rank.number == 0;
            if (registers) {
                ASSERT_EQ(ncclCommWindowRegister(rank.comm, memory, 8192, &window,
                                                 nccl::window_symmetric),
                          0);
            }
            ncclAllReduce(memory, memory, 1, nccl::f32, nccl::sum, rank.comm, rank.stream);
            cudaStreamSynchronize(rank.stream);
            if (registers) ncclCommWindowDeregister(rank.comm, window);
            EXPECT_EQ(ncclMemFree(memory), 0);
        });
        if (all) {
            EXPECT_EQ(take_violations(), "");
        } else EXPECT_THAT_VIOLATION("on registered memory and on unregistered memory");
    }
}

TEST(NcclDouble, FindsMemoryFreedWhileRegistered) {
    run_nccl_ranks(1, [](Rank &rank) {
        void *memory = nullptr;
        nccl::Window window = nullptr;
        ASSERT_EQ(ncclMemAlloc(&memory, 4096), 0);
        ASSERT_EQ(ncclCommWindowRegister(rank.comm, memory, 4096, &window, 0), 0);
        ncclMemFree(memory);
        ncclCommWindowDeregister(rank.comm, window);
        auto *plain = rank.array<float>(1024);
        EXPECT_EQ(ncclCommWindowRegister(rank.comm, plain, 4096, &window, 0),
                  nccl::invalid_argument);
    });
    EXPECT_THAT_VIOLATION("freed while it is a registered window of rank 0");
}

// Mutation: memory is freed without a wait for the work that uses it.
TEST(NcclDouble, FindsMemoryFreedInUse) {
    for (const bool waits : {true, false}) {
        run_nccl_ranks(1, [waits](Rank &rank) {
            void *memory = nullptr;
            ASSERT_EQ(ncclMemAlloc(&memory, 4096), 0);
            launch(rank.stream, "kernel", {{memory, 4, true}}, [] {});
            if (waits) cudaDeviceSynchronize();
            EXPECT_EQ(ncclMemFree(memory), 0);
        });
        if (waits) {
            EXPECT_EQ(take_violations(), "");
        } else EXPECT_THAT_VIOLATION("freed while kernel may use it");
    }
}

// Mutation: a copy reads a window of another rank without a meeting, and after it was unmapped.
TEST(NcclDouble, FindsReadsOfWindowsOfOtherRanks) {
    SKIP_RACE_WITH_THREAD_SANITIZER();
    std::barrier<> all(2);
    for (const char *when : {"unordered", "unmapped"}) {
        run_nccl_ranks(2, [&](Rank &rank) {
            const SharedMemory shared(rank, all);
            if (rank.number == 1 && when == std::string("unordered"))
                launch(rank.stream, "writer", {{shared.memory, 4, true}}, [] {});
            cudaStreamSynchronize(rank.stream);
            all.arrive_and_wait();
            if (when == std::string("unmapped")) {
                EXPECT_EQ(ncclCommWindowDeregister(rank.comm, shared.window), 0);
            }
            auto *to = rank.array<float>(1);
            if (rank.number == 0) cudaMemcpyAsync(to, shared.peer, 4, 3, rank.stream);
            cudaStreamSynchronize(rank.stream);
            all.arrive_and_wait();
            if (when == std::string("unordered")) {
                EXPECT_EQ(ncclCommWindowDeregister(rank.comm, shared.window), 0);
            }
            EXPECT_EQ(ncclMemFree(shared.memory), 0);
        });
        if (when == std::string("unordered")) {
            EXPECT_THAT_VIOLATION("cudaMemcpyAsync reads .* without a meeting after writer");
        } else EXPECT_THAT_VIOLATION("cudaMemcpyAsync reads .* which is not mapped on device 0");
    }
}

TEST(NcclDouble, FindsOverlapAndMissingDependencies) {
    run_nccl_ranks(2, [](Rank &rank) {
        auto *memory = rank.array<float>(8);
        ncclAllGather(memory + 2 * rank.number, memory, 2, nccl::f32, rank.comm, rank.stream);
        cudaStreamSynchronize(rank.stream);
    });
    EXPECT_EQ(take_violations(), "") << "in place";
    run_nccl_ranks(2, [](Rank &rank) {
        auto *memory = rank.array<float>(8);
        ncclAllGather(memory + 1, memory, 2, nccl::f32, rank.comm, rank.stream);
        cudaStreamSynchronize(rank.stream);
    });
    EXPECT_THAT_VIOLATION("overlap, but not in place");
    run_nccl_ranks(2, [](Rank &rank) {
        cuda::Stream compute = nullptr;
        ASSERT_EQ(cudaStreamCreateWithFlags(&compute, 1), 0);
        auto *memory = rank.array<float>(4);
        launch(compute, "forward", {{memory, 16, true}}, [] {});
        ncclAllReduce(memory, memory, 4, nccl::f32, nccl::sum, rank.comm, rank.stream);
        cudaDeviceSynchronize();
        cudaStreamDestroy(compute);
    });
    EXPECT_THAT_VIOLATION("ncclAllReduce.* without a stream dependency on forward");
}

// Mutation: messages of a ring without a group wait for one another.
TEST(NcclDouble, FindsADeadlock) {
    setenv("GPU_DOUBLE_SECONDS", "0", 1);
    run_nccl_ranks(2, [](Rank &rank) {
        auto *memory = rank.array<float>(2);
        ncclSend(memory, 1, nccl::f32, 1 - rank.number, rank.comm, rank.stream);
        cudaStreamSynchronize(rank.stream);
    });
    unsetenv("GPU_DOUBLE_SECONDS");
    EXPECT_THAT_VIOLATION("waits too long in ncclSend.*: a deadlock");
}

TEST(NcclDouble, AbortEndsABrokenCollective) {
    run_nccl_ranks(3, [](Rank &rank) {
        auto *memory = rank.array<float>(1);
        if (rank.number == 1) break_device(1, nccl::remote_error);
        ncclAllReduce(memory, memory, 1, nccl::f32, nccl::sum, rank.comm, rank.stream);
        nccl::Result error = 0;
        while (rank.number == 1 && error == nccl::success) ncclCommGetAsyncError(rank.comm, &error);
        if (rank.number == 1) {
            EXPECT_EQ(error, nccl::remote_error);
        }
        EXPECT_EQ(ncclCommAbort(rank.comm), 0);
        rank.comm = nullptr;
        EXPECT_EQ(cudaStreamSynchronize(rank.stream), 0);
    });
    EXPECT_EQ(take_violations(), "");
}

// Mutation: another thread aborts a communicator with calls in an open group.
TEST(NcclDouble, FindsAnAbortBesideAnOpenGroup) {
    run_nccl_ranks(1, [](Rank &rank) {
        auto *memory = rank.array<float>(1);
        ncclGroupStart();
        ncclAllReduce(memory, memory, 1, nccl::f32, nccl::sum, rank.comm, rank.stream);
        std::thread([&] { ncclCommAbort(std::exchange(rank.comm, nullptr)); }).join();
        ncclGroupEnd();
        cudaStreamSynchronize(rank.stream);
    });
    EXPECT_THAT_VIOLATION("ncclCommAbort.. of a communicator with calls in an open group");
}

TEST(NcclDouble, NonBlockingCallsStartLater) {
    nccl::UniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), 0);
    Device device(0);
    nccl::Config config;
    config.blocking = 0;
    nccl::Comm comm = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), nccl::in_progress);
    const auto settle = [&] {
        nccl::Result error = nccl::in_progress;
        int questions = 0;
        for (; error == nccl::in_progress; ++questions) ncclCommGetAsyncError(comm, &error);
        EXPECT_EQ(error, nccl::success);
        return questions;
    };
    settle();
    auto *memory = device.upload<float>({1});
    const auto reduce = [&] {
        return ncclAllReduce(memory, memory, 1, nccl::f32, nccl::sum, comm, device.stream);
    };
    int in_progress = 0;
    for (int i = 0; i < 6; ++i)
        if (reduce() == nccl::in_progress) in_progress += settle() > 0;
    EXPECT_EQ(in_progress, 4);
    EXPECT_EQ(take_violations(), "");
    // Mutation: the next call does not wait.
    EXPECT_EQ(reduce(), nccl::in_progress);
    EXPECT_EQ(reduce(), nccl::invalid_argument);
    EXPECT_THAT_VIOLATION("ncclAllReduce while the previous call is in progress");
    settle();
    cudaStreamSynchronize(device.stream);
    ncclCommFinalize(comm);
    EXPECT_EQ(ncclCommDestroy(comm), 0);
}

TEST(NcclDouble, AnAbortWaitsForGraphs) {
    setenv("GPU_DOUBLE_SECONDS", "0", 1);
    CUgraph_st *graph = nullptr;
    run_nccl_ranks(1, [&](Rank &rank) {
        auto *memory = rank.array<float>(1);
        ASSERT_EQ(cudaStreamBeginCapture(rank.stream, 1), 0);
        ncclAllReduce(memory, memory, 1, nccl::f32, nccl::sum, rank.comm, rank.stream);
        ASSERT_EQ(cudaStreamEndCapture(rank.stream, &graph), 0);
        ncclCommAbort(std::exchange(rank.comm, nullptr));
    });
    unsetenv("GPU_DOUBLE_SECONDS");
    cudaGraphDestroy(graph);
    EXPECT_THAT_VIOLATION("ncclCommAbort.. waits too long for the end of graphs");
}

TEST(NcclDouble, CollectivesCanBeCaptured) {
    run_nccl_ranks(3, [](Rank &rank) {
        auto *memory = rank.upload<float>({1});
        CUgraph_st *graph = nullptr;
        CUgraphExec_st *exec = nullptr;
        ASSERT_EQ(cudaStreamBeginCapture(rank.stream, 1), 0);
        ncclAllReduce(memory, memory, 1, nccl::f32, nccl::sum, rank.comm, rank.stream);
        ASSERT_EQ(cudaStreamEndCapture(rank.stream, &graph), 0);
        ASSERT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), 0);
        for (int i = 0; i < 3; ++i) ASSERT_EQ(cudaGraphLaunch(exec, rank.stream), 0);
        EXPECT_EQ(rank.read(memory, 1)[0], 27);
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(graph);
    });
    EXPECT_EQ(take_violations(), "");
}

}  // namespace
}  // namespace gpu_double
