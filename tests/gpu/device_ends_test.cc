// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The end of device communicators and of their memory, while graphs or work still use them.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>
#include <utility>

#include "gpu/device_ranks.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using gpu_double::live_communicators;
using gpu_double::take_violations;

// A graph with an all_reduce.
struct CapturedCall {
    explicit CapturedCall(DeviceRank &r) {
        auto *data = r.array<float>(1);
        EXPECT_EQ(cudaStreamBeginCapture(r.stream, 1), 0);
        EXPECT_EQ(vescomm_gpu_all_reduce(r.gpu, data, data, 1, VESCOMM_F32, VESCOMM_SUM, r.stream),
                  VESCOMM_OK);
        EXPECT_EQ(cudaStreamEndCapture(r.stream, &graph), 0);
        EXPECT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), 0);
    }
    void destroy() {
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(graph);
    }

    CUgraph_st *graph = nullptr;
    CUgraphExec_st *exec = nullptr;
};

TEST(DeviceEnds, AnAbortDoesNotWaitForGraphs) {
    std::barrier<> all(2);
    run_devices(hurried(node_of_ranks(2)), [&](DeviceRank &r) {
        EXPECT_EQ(r.create(device_options()), VESCOMM_OK);
        CapturedCall captured(r);
        all.arrive_and_wait();
        if (r.rank == 0) r.parent.value->abort("rank 0 gives up");
        while (vescomm_gpu_comm_check(r.gpu) == VESCOMM_OK) std::this_thread::yield();
        EXPECT_EQ(vescomm_gpu_comm_check(r.gpu), VESCOMM_ERROR_ABORTED);
        EXPECT_GT(live_communicators(), 0) << "ncclCommAbort() still runs";
        EXPECT_EQ(vescomm_gpu_comm_free(r.gpu), VESCOMM_OK);
        r.gpu = nullptr;
        all.arrive_and_wait();
        captured.destroy();
        while (live_communicators() > 0) std::this_thread::yield();
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceEnds, AFreeDoesNotWaitForGraphs) {
    std::barrier<> all(2);
    run_devices(hurried(node_of_ranks(2)), [&](DeviceRank &r) {
        EXPECT_EQ(r.create(device_options()), VESCOMM_OK);
        CapturedCall captured(r);
        EXPECT_EQ(vescomm_gpu_comm_free(r.gpu), VESCOMM_OK);
        r.gpu = nullptr;
        all.arrive_and_wait();
        EXPECT_GT(live_communicators(), 0) << "NCCL waits for the graphs";
        all.arrive_and_wait();
        captured.destroy();
        while (live_communicators() > 0) std::this_thread::yield();
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceEnds, MemoryIsFreedAfterItsWork) {
    run_device_ranks(3, device_options("padded"), [](DeviceRank &r) {
        void *memory = nullptr, *kept = nullptr;
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 100, &memory), VESCOMM_OK) << vescomm_get_last_error();
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 100, &kept), VESCOMM_OK);
        auto *data = static_cast<float *>(memory);
        EXPECT_EQ(vescomm_gpu_all_reduce(r.gpu, data, data, 25, VESCOMM_F32, VESCOMM_SUM, r.stream),
                  VESCOMM_OK);
        EXPECT_EQ(vescomm_gpu_mfree(r.gpu, memory), VESCOMM_OK) << vescomm_get_last_error();
        // The destructor of the rank frees this memory and the workspace, without a wait.
        EXPECT_EQ(vescomm_gpu_all_gather_v(r.gpu, VectorLayout({1, 2, 3}), VESCOMM_F32, nullptr,
                                           kept, r.stream),
                  VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceEnds, MemoryOfWorkThatHangsIsLeaked) {
    std::atomic<bool> open{false};
    run_devices(hurried(node_of_ranks(1)), [&](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options()), VESCOMM_OK);
        void *memory = nullptr;
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 4, &memory), VESCOMM_OK);
        const int frees = gpu_double::calls_of("ncclMemFree");
        gpu_double::launch(r.stream, "kernel", {{memory, 4, true}}, [&] { open.wait(false); });
        EXPECT_EQ(vescomm_gpu_mfree(r.gpu, memory), VESCOMM_ERROR_TIMEOUT);
        EXPECT_NE(std::string(vescomm_get_last_error()).find("to free memory"), std::string::npos)
            << vescomm_get_last_error();
        EXPECT_EQ(vescomm_gpu_comm_free(r.gpu), VESCOMM_OK);
        r.gpu = nullptr;
        EXPECT_EQ(gpu_double::calls_of("ncclMemFree"), frees);
        open = true;
        open.notify_all();
        EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceEnds, MemoryThatStaysRegisteredIsLeaked) {
    std::atomic<int> failures{0};
    const int frees = gpu_double::calls_of("ncclMemFree");
    run_device_ranks(2, device_options(), [&](DeviceRank &r) {
        void *memory = nullptr;
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 4, &memory), VESCOMM_OK);
        if (r.rank == 0) gpu_double::fail_call("ncclCommWindowDeregister", 0, nccl::system_error);
        if (vescomm_gpu_mfree(r.gpu, memory) != VESCOMM_OK) {
            ++failures;
            EXPECT_NE(std::string(vescomm_get_last_error())
                          .find("ncclCommWindowDeregister() failed on rank "),
                      std::string::npos)
                << vescomm_get_last_error();
        }
        // The other rank may learn of the failure here.
        vescomm_gpu_comm_free(std::exchange(r.gpu, nullptr));
    });
    gpu_double::fail_call("", 0, 0);
    EXPECT_GT(failures, 0);
    EXPECT_EQ(gpu_double::calls_of("ncclMemFree"), frees + 2 * 2 - 1);
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceEnds, MemoryIsFreedAlsoAfterTheCommunicator) {
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        void *memory = nullptr;
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 4, &memory), VESCOMM_OK);
        r.parent.value->finalize();
        EXPECT_EQ(vescomm_gpu_mfree(r.gpu, memory), VESCOMM_OK) << vescomm_get_last_error();
    });
    EXPECT_EQ(take_violations(), "");
}

// ---- a free with work that another rank never completes ----

// Starts a sum that needs all ranks.
void start_sum(DeviceRank &r) {
    auto *data = r.array<float>(1);
    ASSERT_EQ(vescomm_gpu_all_reduce(r.gpu, data, data, 1, VESCOMM_F32, VESCOMM_SUM, r.stream),
              VESCOMM_OK)
        << vescomm_get_last_error();
}

// Frees the communicator, whose handle does not exist afterwards. The work has ended.
void expect_free(DeviceRank &r, vescomm_status_t expected, const std::string &says) {
    EXPECT_EQ(vescomm_gpu_comm_free(r.gpu), expected) << vescomm_get_last_error();
    r.gpu = nullptr;
    EXPECT_NE(std::string(vescomm_get_last_error()).find(says), std::string::npos)
        << vescomm_get_last_error();
    // The thread of the stream leaves an aborted kernel a moment later.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto busy = [&] { return gpu_double::cudaStreamQuery(r.stream) != 0; };
    while (busy() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    EXPECT_FALSE(busy()) << "a kernel still runs";
}

enum class Uses { nothing, revocation, workspace };

vescomm_gpu_comm_options_t options_for(Uses uses) {
    auto options = device_options(nullptr, uses == Uses::workspace ? 1 << 20 : 0);
    options.shrinkable = uses == Uses::revocation ? 1 : 0;
    return options;
}

constexpr Uses all_uses[] = {Uses::nothing, Uses::revocation, Uses::workspace};

TEST(DeviceEnds, AFreeEndsWithTheFailureOfAnotherRank) {
    for (const Uses uses : all_uses) {
        SCOPED_TRACE(static_cast<int>(uses));
        std::atomic<bool> freeing{false};
        run_devices(node_of_ranks(2), [&](DeviceRank &r) {
            ASSERT_EQ(r.create(options_for(uses)), VESCOMM_OK);
            if (r.rank == 0) {
                start_sum(r);
                const int asked = gpu_double::calls_of("cudaDeviceSynchronize");
                std::thread watch([&, asked] {
                    while (gpu_double::calls_of("cudaDeviceSynchronize") == asked)
                        std::this_thread::yield();
                    freeing = true;
                });
                expect_free(r, VESCOMM_ERROR_ABORTED, "rank 1 gives up");
                watch.join();
            } else {
                while (!freeing) std::this_thread::yield();
                r.parent.value->abort("rank 1 gives up");
            }
        });
        EXPECT_EQ(take_violations(), "");
    }
}

TEST(DeviceEnds, AFreeEndsTheWorkAtItsDeadline) {
    for (const Uses uses : all_uses) {
        SCOPED_TRACE(static_cast<int>(uses));
        std::barrier<> all(2);
        run_devices(hurried(node_of_ranks(2)), [&](DeviceRank &r) {
            ASSERT_EQ(r.create(options_for(uses)), VESCOMM_OK);
            if (r.rank == 0) {
                start_sum(r);
                expect_free(r, VESCOMM_ERROR_TIMEOUT,
                            "rank 0 waited for the work of the device, to free the communicator "
                            "until its deadline; rank 1 of this node has not made call 1");
            }
            all.arrive_and_wait();
        });
        EXPECT_EQ(take_violations(), "");
    }
}

TEST(DeviceEnds, AFreeAfterTheCommunicatorEndsTheWorkAtItsDeadline) {
    std::barrier<> all(2);
    run_devices(hurried(node_of_ranks(2)), [&](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options()), VESCOMM_OK);
        if (r.rank == 0) start_sum(r);
        r.parent.value->finalize();
        EXPECT_EQ(vescomm_gpu_comm_check(r.gpu), VESCOMM_OK) << vescomm_get_last_error();
        if (r.rank == 0)
            expect_free(r, VESCOMM_ERROR_TIMEOUT, "to free the communicator until its deadline");
        all.arrive_and_wait();
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceEnds, AFreeNamesTheRankThatDoesNotFree) {
    std::barrier<> all(2);
    run_devices(hurried(node_of_ranks(2)), [&](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options()), VESCOMM_OK);
        const std::string sentence =
            "rank 0 waited for the end of NCCL's communicator until its deadline; rank 1 of this "
            "node has not made call 1 on the device communicator, which is "
            "vescomm_gpu_comm_free()";
        if (r.rank == 0) expect_free(r, VESCOMM_ERROR_TIMEOUT, sentence);
        all.arrive_and_wait();
        if (r.rank == 0) return;
        EXPECT_EQ(vescomm_gpu_comm_check(r.gpu), VESCOMM_ERROR_TIMEOUT);
        EXPECT_NE(std::string(vescomm_get_last_error()).find(sentence), std::string::npos)
            << vescomm_get_last_error();
        EXPECT_EQ(vescomm_gpu_comm_free(std::exchange(r.gpu, nullptr)), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
}

// Its ncclCommFinalize() returns before it ends.
TEST(DeviceEnds, AFreeWaitsForACommunicatorThatDoesNotBlock) {
    setenv("NCCL_COMM_BLOCKING", "0", 1);
    std::barrier<> all(2);
    run_device_ranks(2, device_options(), [&](DeviceRank &r) {
        const int calls = gpu_double::calls_of("ncclCommGetAsyncError");
        all.arrive_and_wait();
        while (r.rank == 1 && gpu_double::calls_of("ncclCommGetAsyncError") < calls + 20)
            std::this_thread::yield();
        EXPECT_EQ(vescomm_gpu_comm_free(std::exchange(r.gpu, nullptr)), VESCOMM_OK)
            << vescomm_get_last_error();
    });
    unsetenv("NCCL_COMM_BLOCKING");
    EXPECT_EQ(live_communicators(), 0);
    EXPECT_EQ(take_violations(), "");
}

// Their own communicator is no witness of the end.
TEST(DeviceEnds, AFreeAfterTheCommunicatorNamesTheRankThatDoesNotFree) {
    std::barrier<> all(3);
    run_devices(hurried(node_of_ranks(3)), [&](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options()), VESCOMM_OK);
        r.parent.value->finalize();
        if (r.rank != 2)
            expect_free(r, VESCOMM_ERROR_TIMEOUT,
                        "until its deadline; rank 2 of this node has not made call 1");
        all.arrive_and_wait();
        if (r.rank != 2) return;
        EXPECT_EQ(vescomm_gpu_comm_free(std::exchange(r.gpu, nullptr)), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceEnds, AFreeThatNcclRefusesFails) {
    std::barrier<> all(2);
    std::atomic<int> failures{0};
    run_devices(hurried(node_of_ranks(2)), [&](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options()), VESCOMM_OK);
        if (r.rank == 0) gpu_double::fail_call("ncclCommFinalize", 0, nccl::system_error);
        all.arrive_and_wait();
        // The other rank may end before it learns of the failure.
        if (vescomm_gpu_comm_free(std::exchange(r.gpu, nullptr)) == VESCOMM_OK) return;
        ++failures;
        EXPECT_NE(std::string(vescomm_get_last_error()).find("ncclCommFinalize() failed on rank "),
                  std::string::npos)
            << vescomm_get_last_error();
    });
    gpu_double::fail_call("", 0, 0);
    EXPECT_GT(failures, 0);
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceEnds, AFreeOfABrokenCommunicatorEndsTheWork) {
    std::barrier<> all(2);
    run_devices(node_of_ranks(2), [&](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options()), VESCOMM_OK);
        if (r.rank == 0) start_sum(r);
        all.arrive_and_wait();
        if (r.rank == 1) r.parent.value->abort("rank 1 gives up");
        while (!r.parent.value->failure().broken()) std::this_thread::yield();
        expect_free(r, VESCOMM_OK, "");
    });
    EXPECT_EQ(take_violations(), "");
}

// Rank 1 gets an error of NCCL in work that is on its stream.
void run_with_asynchronous_error(const std::function<void(DeviceRank &, void *)> &body) {
    std::barrier<> all(3);
    run_devices(node_of_ranks(3), [&](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options()), VESCOMM_OK);
        void *memory = nullptr;
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 4, &memory), VESCOMM_OK);
        all.arrive_and_wait();
        if (r.rank == 1) gpu_double::break_device(1, nccl::remote_error);
        all.arrive_and_wait();
        start_sum(r);
        all.arrive_and_wait();
        if (r.rank == 1) return body(r, memory);
        EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_ERROR_PEER_FAILED)
            << vescomm_get_last_error();
    });
    EXPECT_EQ(take_violations(), "");
}

constexpr auto broken_by_rank_1 = "failed on rank 1: remote process";

TEST(DeviceEnds, AnAsynchronousErrorEndsAFreeOfMemory) {
    run_with_asynchronous_error([](DeviceRank &r, void *memory) {
        EXPECT_EQ(vescomm_gpu_mfree(r.gpu, memory), VESCOMM_ERROR_PEER_FAILED)
            << vescomm_get_last_error();
        EXPECT_NE(std::string(vescomm_get_last_error()).find(broken_by_rank_1), std::string::npos)
            << vescomm_get_last_error();
        EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
    });
}

TEST(DeviceEnds, AnAsynchronousErrorEndsAFree) {
    run_with_asynchronous_error(
        [](DeviceRank &r, void *) { expect_free(r, VESCOMM_ERROR_PEER_FAILED, broken_by_rank_1); });
}

// ---- captures of the program ----

TEST(DeviceCaptures, PermitSetUpAndWaits) {
    for (const int mode : {0, 1, 2}) {
        SCOPED_TRACE(mode);
        std::barrier<> all(2);
        run_devices(node_of_ranks(2), [&](DeviceRank &r) {
            cuda::Stream other = nullptr;
            CUgraph_st *graph = nullptr;
            void *memory = nullptr;
            EXPECT_EQ(cudaStreamCreateWithFlags(&other, 1), 0);
            auto *data = r.array<float>(1);
            all.arrive_and_wait();
            EXPECT_EQ(cudaStreamBeginCapture(r.stream, mode), 0);
            all.arrive_and_wait();
            EXPECT_EQ(r.create(device_options()), VESCOMM_OK) << vescomm_get_last_error();
            EXPECT_EQ(vescomm_gpu_malloc(r.gpu, 4, &memory), VESCOMM_OK)
                << vescomm_get_last_error();
            EXPECT_EQ(
                vescomm_gpu_all_reduce(r.gpu, data, data, 1, VESCOMM_F32, VESCOMM_SUM, r.stream),
                VESCOMM_OK);
            EXPECT_EQ(vescomm_gpu_wait(r.gpu, other), VESCOMM_OK) << vescomm_get_last_error();
            EXPECT_EQ(vescomm_gpu_wait(r.gpu, nullptr), VESCOMM_OK) << vescomm_get_last_error();
            all.arrive_and_wait();
            EXPECT_EQ(cudaStreamEndCapture(r.stream, &graph), 0);
            all.arrive_and_wait();
            cudaGraphDestroy(graph);
            cudaStreamDestroy(other);
        });
        EXPECT_EQ(take_violations(), "");
    }
}

TEST(DeviceCaptures, RefuseWhatTheyForbid) {
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        constexpr auto invalid = VESCOMM_ERROR_INVALID_ARGUMENT;
        cuda::Stream blocking = nullptr;
        CUgraph_st *graph = nullptr;
        void *memory = nullptr;
        ASSERT_EQ(cudaStreamCreateWithFlags(&blocking, 0), 0);
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 4, &memory), VESCOMM_OK);
        auto *data = r.array<float>(1);
        // The default stream would wait for the captured one.
        ASSERT_EQ(cudaStreamBeginCapture(blocking, 1), 0);
        EXPECT_EQ(vescomm_gpu_wait(r.gpu, nullptr), invalid) << vescomm_get_last_error();
        EXPECT_EQ(vescomm_gpu_all_reduce(r.gpu, data, data, 1, VESCOMM_F32, VESCOMM_SUM, nullptr),
                  invalid)
            << vescomm_get_last_error();
        EXPECT_EQ(gpu_double::cudaGetLastError(), 0);
        ASSERT_EQ(cudaStreamEndCapture(blocking, &graph), 0);
        cudaGraphDestroy(graph);
        ASSERT_EQ(cudaStreamBeginCapture(r.stream, 1), 0);
        EXPECT_EQ(vescomm_gpu_mfree(r.gpu, memory), invalid) << vescomm_get_last_error();
        EXPECT_NE(cudaStreamEndCapture(r.stream, &graph), 0);
        EXPECT_EQ(vescomm_gpu_mfree(r.gpu, memory), VESCOMM_OK) << vescomm_get_last_error();
        EXPECT_EQ(vescomm_gpu_comm_check(r.gpu), VESCOMM_OK);
        cudaStreamDestroy(blocking);
    });
    EXPECT_THAT_VIOLATION("a wait for the device during the capture of a graph");
}

// Memory that a capture does not permit to free stays registered, so NCCL's communicator stays too.
TEST(DeviceCaptures, LetTheEndOfACommunicatorLeak) {
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        CUgraph_st *graph = nullptr;
        void *memory = nullptr;
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 4, &memory), VESCOMM_OK);
        r.parent.value->barrier();
        ASSERT_EQ(cudaStreamBeginCapture(r.stream, 1), 0);
        EXPECT_EQ(vescomm_gpu_comm_free(r.gpu), VESCOMM_OK) << vescomm_get_last_error();
        r.gpu = nullptr;
        EXPECT_NE(cudaStreamEndCapture(r.stream, &graph), 0);
    });
    const std::string violations = take_violations();
    EXPECT_NE(violations.find("during the capture of a graph"), std::string::npos) << violations;
    EXPECT_EQ(violations.find("registered memory"), std::string::npos) << violations;
}

}  // namespace
}  // namespace vescomm::internal
