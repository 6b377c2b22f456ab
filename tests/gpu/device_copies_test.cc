// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The method `copy_engine`: copies from the memory of other ranks between two meetings.
#include <gtest/gtest.h>

#include <barrier>
#include <cstdlib>
#include <latch>
#include <regex>

#include "gpu/device_communicator.h"
#include "gpu/device_kernels.h"
#include "gpu/failed_rank.h"
#include "gpu/test_buffer.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using gpu_double::take_violations;

// A version of NCCL with ncclGetPeerDevicePointer(), before any library is loaded.
const int version_is_set = setenv("GPU_DOUBLE_NCCL", "23203", 1);

constexpr auto method = "copy_engine";

// Bytes of the shard of a rank in a run.
Bytes shard_of(const VectorLayout &layout, int of, int run = 0) {
    return any_bits(VESCOMM_BF16, layout.count(of), static_cast<unsigned>(100 * run + of));
}

void write(TestBuffer &buffer, int of, const Bytes &values) {
    if (!values.empty()) buffer.rank.write(buffer.shard<std::uint8_t>(of).data(), values);
}

// Puts the shard of this rank on the stream, and does not wait.
void put(TestBuffer &buffer, const Bytes &values) {
    if (values.empty()) return;
    EXPECT_EQ(gpu_double::cudaMemcpyAsync(buffer.shard<std::uint8_t>(buffer.rank.rank).data(),
                                          values.data(), values.size(), cuda::copy_host_to_device,
                                          buffer.rank.stream),
              0);
}

void expect_gathered(TestBuffer &buffer, const VectorLayout &layout, int run = 0) {
    for (int of = 0; of < buffer.rank.ranks; ++of) {
        const Bytes expected = shard_of(layout, of, run);
        if (expected.empty()) continue;
        EXPECT_EQ(buffer.rank.read(buffer.shard<std::uint8_t>(of).data(), expected.size()),
                  expected)
            << "shard of rank " << of;
    }
}

vescomm_status_t gather(TestBuffer &buffer) {
    return vescomm_gpu_buffer_all_gather_v(&buffer.handle, 1, buffer.rank.stream);
}

// The shapes of other tests, and one with a large shard.
std::vector<std::vector<std::int64_t>> shapes_with_large(int ranks) {
    auto all = shapes(ranks);
    auto &large = all.emplace_back();
    for (int k = 0; k < ranks; ++k) large.push_back(k == 0 ? 50001 : 3 * k);
    return all;
}

TEST(DeviceCopies, GatherTheBytesOfAllRanksWithoutACallOfNccl) {
    gpu_double::forget_calls();
    for (const int ranks : {1, 2, 3, 5, 7})
        run_device_ranks(ranks, device_options(method), [&](DeviceRank &r) {
            for (const auto &counts : shapes_with_large(ranks))
                for (const auto placement : {VESCOMM_GPU_PACKED, VESCOMM_GPU_STRIDED}) {
                    const VectorLayout layout(counts);
                    TestBuffer buffer(r, layout, buffer_options(VESCOMM_BF16, placement));
                    ASSERT_EQ(buffer.status, VESCOMM_OK) << vescomm_get_last_error();
                    write(buffer, r.rank, shard_of(layout, r.rank));
                    ASSERT_EQ(gather(buffer), VESCOMM_OK) << vescomm_get_last_error();
                    ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK)
                        << vescomm_get_last_error();
                    expect_gathered(buffer, layout);
                }
        });
    for (const char *call : {"ncclAllGather", "ncclBroadcast", "ncclSend"})
        EXPECT_EQ(gpu_double::calls_of(call), 0) << call;
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceCopies, ShardsAreRewrittenAfterEachCallOnTheStream) {
    constexpr int runs = 4;
    run_device_ranks(3, device_options(method), [&](DeviceRank &r) {
        const VectorLayout layout({70, 0, 300});
        TestBuffer buffer(r, layout, buffer_options(VESCOMM_BF16, VESCOMM_GPU_PACKED));
        std::vector<Bytes> values;
        for (int run = 0; run < runs; ++run) values.push_back(shard_of(layout, r.rank, run));
        for (const Bytes &one : values) {
            put(buffer, one);
            ASSERT_EQ(gather(buffer), VESCOMM_OK) << vescomm_get_last_error();
        }
        ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
        expect_gathered(buffer, layout, runs - 1);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceCopies, SeveralBuffersShareTwoMeetings) {
    run_device_ranks(3, device_options(method), [&](DeviceRank &r) {
        const VectorLayout first_layout({4, 12, 8}), second_layout({0, 0, 40}),
            empty_layout({0, 0, 0});
        const auto options = buffer_options(VESCOMM_BF16, VESCOMM_GPU_PACKED);
        TestBuffer first(r, first_layout, options), second(r, second_layout, options),
            empty(r, empty_layout, options);
        write(first, r.rank, shard_of(first_layout, r.rank));
        write(second, r.rank, shard_of(second_layout, r.rank));
        vescomm_gpu_buffer_t *const all[] = {first.handle, empty.handle, second.handle};
        const int launches = calls_in(r, "cudaLaunchKernel", [&] {
            ASSERT_EQ(vescomm_gpu_buffer_all_gather_v(all, 3, r.stream), VESCOMM_OK);
        });
        EXPECT_EQ(launches, 2 * r.ranks);
        ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
        expect_gathered(first, first_layout);
        expect_gathered(second, second_layout);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceCopies, AGraphWithReductionsCanBeLaunchedAgain) {
    run_device_ranks(3, device_options(method), [](DeviceRank &r) {
        TestBuffer buffer(r, VectorLayout({4, 0, 12}),
                          buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
        CUgraph_st *graph = nullptr;
        CUgraphExec_st *exec = nullptr;
        ASSERT_EQ(cudaStreamBeginCapture(r.stream, 1), 0);
        ASSERT_EQ(gather(buffer), VESCOMM_OK);
        ASSERT_EQ(vescomm_gpu_buffer_reduce_scatter_v(&buffer.handle, 1, VESCOMM_SUM, r.stream),
                  VESCOMM_OK)
            << vescomm_get_last_error();
        ASSERT_EQ(cudaStreamEndCapture(r.stream, &graph), 0);
        ASSERT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), 0);
        const std::size_t count = buffer.shard<float>(r.rank).size();
        for (int launch = 1; launch <= 3; ++launch) {
            buffer.write(r.rank, std::vector<float>(count, static_cast<float>(launch)));
            ASSERT_EQ(cudaGraphLaunch(exec, r.stream), 0);
            ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
            EXPECT_EQ(buffer.read<float>(r.rank),
                      std::vector<float>(count, 3.0f * static_cast<float>(launch)));
        }
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(graph);
    });
    EXPECT_EQ(take_violations(), "");
}

// ---- where it does not suit ----

std::string explanation(DeviceRank &r, bool reduces) {
    TestBuffer buffer(r,
                      VectorLayout(std::vector<std::int64_t>(static_cast<std::size_t>(r.ranks), 4)),
                      buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
    const char *text = nullptr;
    EXPECT_EQ(vescomm_gpu_buffer_explain(buffer.handle, reduces, &text), VESCOMM_OK)
        << vescomm_get_last_error();
    return text == nullptr ? "" : text;
}

TEST(DeviceCopies, ExplanationsHaveTheReason) {
    run_device_ranks(2, device_options(method), [](DeviceRank &r) {
        EXPECT_NE(explanation(r, false).find("method copy_engine, because the options"),
                  std::string::npos)
            << explanation(r, false);
        const std::string text = explanation(r, true);
        EXPECT_NE(text.find("copy_engine: copy engines do not reduce"), std::string::npos) << text;
        EXPECT_NE(text.find("ask for copy_engine, which does not reduce"), std::string::npos)
            << text;
    });
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        EXPECT_NE(explanation(r, false).find("only if asked for by name"), std::string::npos);
    });
    run_device_ranks(2, device_options(method), [](DeviceRank &r) {
        EXPECT_EQ(vescomm_gpu_all_gather_v(r.gpu, VectorLayout({1, 1}), VESCOMM_F32, nullptr,
                                           r.array<float>(2), r.stream),
                  VESCOMM_ERROR_UNSUPPORTED);
        EXPECT_NE(std::string(vescomm_get_last_error()).find("it is for device buffers"),
                  std::string::npos);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceCopies, AnotherLayoutOfARankIsAMismatch) {
    run_device_ranks(2, device_options(method), [](DeviceRank &r) {
        const auto options = buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED);
        TestBuffer first(r, VectorLayout({4, 8}), options),
            second(r, VectorLayout({8, 4}), options);
        vescomm_status_t status = gather(r.rank == 0 ? first : second);
        if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
        while (status == VESCOMM_OK) status = vescomm_gpu_comm_check(r.gpu);
        EXPECT_EQ(status, VESCOMM_ERROR_MISMATCH) << vescomm_get_last_error();
        EXPECT_NE(std::string(vescomm_get_last_error()).find("copy_engine"), std::string::npos)
            << vescomm_get_last_error();
        EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
    });
    EXPECT_EQ(take_violations(), "");
}

// ---- mutations ----

// Two ranks write their shards, gather, and write them again, all on their streams. The launch
// number `omitted` of each rank has no effect: 0 and 1 are the meetings. Returns the violations.
std::string violations_without_launch(int omitted) {
    std::barrier<> all(2);
    run_device_ranks(2, device_options(method), [&](DeviceRank &r) {
        const VectorLayout layout({40, 70});
        TestBuffer buffer(r, layout, buffer_options(VESCOMM_BF16, VESCOMM_GPU_PACKED));
        const Bytes before = shard_of(layout, r.rank), after = shard_of(layout, r.rank, 1);
        for (int turn = 0; turn < 2; ++turn) {
            all.arrive_and_wait();
            if (turn != r.rank) continue;
            gpu_double::fail_call("", 0, 0);
            if (omitted >= 0)
                gpu_double::fail_call("cudaLaunchKernel", omitted, gpu_double::no_effect);
            put(buffer, before);
            EXPECT_EQ(gather(buffer), VESCOMM_OK) << vescomm_get_last_error();
            put(buffer, after);
        }
        all.arrive_and_wait();
        EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
        all.arrive_and_wait();
    });
    gpu_double::fail_call("", 0, 0);
    return take_violations();
}

TEST(DeviceCopiesMutations, NoMutationIsNoViolation) {
    EXPECT_EQ(violations_without_launch(-1), "");
}

TEST(DeviceCopiesMutations, AMissingFirstMeetingIsFound) {
    SKIP_RACE_WITH_THREAD_SANITIZER();
    EXPECT_TRUE(std::regex_search(violations_without_launch(0),
                                  std::regex("cudaMemcpyAsync (reads|writes) .* without a meeting "
                                             "after cudaMemcpyAsync")));
}

TEST(DeviceCopiesMutations, AMissingLastMeetingIsFound) {
    SKIP_RACE_WITH_THREAD_SANITIZER();
    EXPECT_TRUE(std::regex_search(violations_without_launch(1),
                                  std::regex("cudaMemcpyAsync (reads|writes) .* without a meeting "
                                             "after cudaMemcpyAsync")));
}

// ---- failures ----

TEST(DeviceCopies, NoMeetingWaitsForARankThatHasFailed) {
    expect_no_wait_for_a_failed_rank(method);
}

// Copies that were queued before the failure run when the rank from which they read has freed its
// memory: that stays mapped.
TEST(DeviceCopies, QueuedCopiesReadMappedMemoryAfterTheDeathOfARank) {
    std::barrier<> all(3);
    run_devices(node_of_ranks(3), [&](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options(method)), VESCOMM_OK);
        {
            TestBuffer buffer(r, VectorLayout({4, 8, 12}),
                              buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
            all.arrive_and_wait();
            std::latch freed(1);
            if (r.rank != 1) {
                gpu_double::launch(r.stream, "computation", {}, [&] { freed.wait(); });
                for (int call = 0; call < 3; ++call) EXPECT_EQ(gather(buffer), VESCOMM_OK);
            }
            all.arrive_and_wait();
            if (r.rank == 1) {
                r.parent.value->abort("rank 1 dies");
                EXPECT_EQ(buffer.free(), VESCOMM_OK) << vescomm_get_last_error();
            }
            while (vescomm_gpu_comm_check(r.gpu) == VESCOMM_OK) continue;
            all.arrive_and_wait();
            freed.count_down();
            EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
        }
        EXPECT_EQ(vescomm_gpu_comm_free(r.gpu), VESCOMM_OK);
        r.gpu = nullptr;
        all.arrive_and_wait();
    });
    EXPECT_EQ(take_violations(), "");
    EXPECT_EQ(gpu_double::live_communicators(), 0);
}

// A free cannot wait for the device while a stream is captured, so the windows must stay mapped.
TEST(DeviceCopies, AFreeDuringACaptureKeepsTheWindows) {
    std::barrier<> all(2);
    std::latch freed(1);
    run_devices(node_of_ranks(2), [&](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options(method)), VESCOMM_OK);
        TestBuffer buffer(r, VectorLayout({4, 8}), buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
        all.arrive_and_wait();
        gpu_double::launch(r.stream, "computation", {}, [&] { freed.wait(); });
        EXPECT_EQ(gather(buffer), VESCOMM_OK);
        all.arrive_and_wait();
        CUstream_st *other = nullptr;
        EXPECT_EQ(gpu_double::cudaStreamCreateWithFlags(&other, 1), 0);
        EXPECT_EQ(cudaStreamBeginCapture(other, 0), 0);
        EXPECT_EQ(vescomm_gpu_comm_free(r.gpu), VESCOMM_OK) << vescomm_get_last_error();
        r.gpu = nullptr;
        CUgraph_st *graph = nullptr;
        EXPECT_NE(cudaStreamEndCapture(other, &graph), 0) << "see vescomm_gpu_comm_free()";
        EXPECT_EQ(buffer.free(), VESCOMM_OK);
        all.arrive_and_wait();
        if (r.rank == 0) freed.count_down();
        EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
        all.arrive_and_wait();
    });
    // The double reports the attempts to wait during the capture.
    EXPECT_EQ(take_violations().find("not mapped"), std::string::npos);
    EXPECT_GT(gpu_double::live_communicators(), 0);
}

TEST(DeviceCopies, AFailedCopyReachesAllRanks) {
    for (const char *function : {"cudaMemcpyAsync", "cudaLaunchKernel"}) {
        std::barrier<> all(2);
        run_device_ranks(2, device_options(method), [&](DeviceRank &r) {
            TestBuffer buffer(r, VectorLayout({4, 8}),
                              buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
            all.arrive_and_wait();
            if (r.rank == 0) gpu_double::fail_call(function, 0, 700);
            all.arrive_and_wait();
            vescomm_status_t status = gather(buffer);
            if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
            EXPECT_EQ(status, VESCOMM_ERROR_SYSTEM) << vescomm_get_last_error();
            EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
            all.arrive_and_wait();
        });
        gpu_double::fail_call("", 0, 0);
    }
    EXPECT_EQ(take_violations(), "");
}

}  // namespace
}  // namespace vescomm::internal
