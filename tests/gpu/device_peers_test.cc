// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The method `peer`: kernels that read the memory of other ranks. Results have the bits of host
// memory, graphs can be launched again, and no kernel waits for a rank that has failed.
#include <gtest/gtest.h>

#include <barrier>
#include <cstdlib>

#include "execute/kernels.h"
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

constexpr int rank_counts[] = {2, 3, 5, 7};

// Bytes of a shard of a rank in the buffer of another one: different everywhere.
Bytes shard_of(vescomm_type_t type, std::size_t count, int of, int in) {
    const auto seed = static_cast<unsigned>(100 * of + in);
    return is_float(type) && type != VESCOMM_F64 ? plain_floats(type, count, seed)
                                                 : any_bits(type, count, seed);
}

void write(TestBuffer &buffer, int of, const Bytes &values) {
    if (!values.empty()) buffer.rank.write(buffer.shard<std::uint8_t>(of).data(), values);
}

Bytes read(TestBuffer &buffer, int of, vescomm_type_t type) {
    const auto elements = buffer.shard<std::uint8_t>(of);
    if (elements.empty()) return {};
    return buffer.rank.read(elements.data(), elements.size() * size_of(type));
}

// The reduction of the shard of a rank by the loops of the host.
Bytes reduced(vescomm_type_t type, vescomm_op_t op, std::size_t count, int of, int ranks) {
    std::vector<Bytes> shards;
    std::vector<const void *> sources;
    for (int in = 0; in < ranks; ++in) shards.push_back(shard_of(type, count, of, in));
    for (const Bytes &one : shards) sources.push_back(one.data());
    Reduction how;
    how.op = op;
    how.divisor = op == VESCOMM_AVERAGE ? ranks : 1;
    Bytes result(count * size_of(type));
    kernels().reduce(how, sources, type, {}, result.data(), type, count);
    return result;
}

void check_gather(DeviceRank &r, const VectorLayout &layout, vescomm_gpu_placement_t placement) {
    TestBuffer buffer(r, layout, buffer_options(VESCOMM_BF16, placement));
    ASSERT_EQ(buffer.status, VESCOMM_OK) << vescomm_get_last_error();
    write(buffer, r.rank, shard_of(VESCOMM_BF16, layout.count(r.rank), r.rank, r.rank));
    ASSERT_EQ(vescomm_gpu_buffer_all_gather_v(&buffer.handle, 1, r.stream), VESCOMM_OK)
        << vescomm_get_last_error();
    ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK) << vescomm_get_last_error();
    for (int of = 0; of < r.ranks; ++of)
        EXPECT_EQ(read(buffer, of, VESCOMM_BF16), shard_of(VESCOMM_BF16, layout.count(of), of, of))
            << of;
}

void check_reduce(DeviceRank &r, const VectorLayout &layout, vescomm_type_t type, vescomm_op_t op) {
    SCOPED_TRACE(testing::Message() << "type " << type << ", operator " << op);
    TestBuffer buffer(r, layout, buffer_options(type, VESCOMM_GPU_PACKED));
    ASSERT_EQ(buffer.status, VESCOMM_OK) << vescomm_get_last_error();
    for (int of = 0; of < r.ranks; ++of)
        write(buffer, of, shard_of(type, layout.count(of), of, r.rank));
    ASSERT_EQ(vescomm_gpu_buffer_reduce_scatter_v(&buffer.handle, 1, op, r.stream), VESCOMM_OK)
        << vescomm_get_last_error();
    ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK) << vescomm_get_last_error();
    EXPECT_EQ(read(buffer, r.rank, type), reduced(type, op, layout.count(r.rank), r.rank, r.ranks));
    for (int of = 0; of < r.ranks; ++of) {
        if (of == r.rank) continue;
        EXPECT_EQ(read(buffer, of, type), shard_of(type, layout.count(of), of, r.rank))
            << "other shards do not change";
    }
}

// The shapes of other tests, and one of several tiles and blocks.
std::vector<std::vector<std::int64_t>> shapes_with_large(int ranks) {
    auto all = shapes(ranks);
    auto &large = all.emplace_back();
    for (int k = 0; k < ranks; ++k) large.push_back(k == 0 ? 5001 : 3 * k);
    return all;
}

TEST(DevicePeers, GathersHaveTheBytesOfAllRanks) {
    for (const int ranks : rank_counts)
        for (const bool reversed : {false, true}) {
            gpu_double::reverse_kernels(reversed);
            run_device_ranks(ranks, device_options("peer"), [&](DeviceRank &r) {
                for (const auto &counts : shapes_with_large(ranks))
                    for (const auto placement : {VESCOMM_GPU_PACKED, VESCOMM_GPU_STRIDED})
                        check_gather(r, VectorLayout(counts), placement);
            });
        }
    gpu_double::reverse_kernels(false);
    EXPECT_EQ(take_violations(), "");
}

TEST(DevicePeers, OneRankHasNothingToRead) {
    run_device_ranks(1, device_options("peer"), [](DeviceRank &r) {
        check_gather(r, VectorLayout({33}), VESCOMM_GPU_PACKED);
        check_reduce(r, VectorLayout({33}), VESCOMM_F32, VESCOMM_SUM);
        check_reduce(r, VectorLayout({33}), VESCOMM_BF16, VESCOMM_AVERAGE);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DevicePeers, ReductionsHaveTheBitsOfTheHost) {
    constexpr vescomm_type_t types[] = {VESCOMM_F32, VESCOMM_F64, VESCOMM_BF16, VESCOMM_F16,
                                        VESCOMM_I8,  VESCOMM_U8,  VESCOMM_I32,  VESCOMM_U32,
                                        VESCOMM_I64, VESCOMM_U64};
    run_device_ranks(3, device_options("peer"), [&](DeviceRank &r) {
        for (const vescomm_type_t type : types)
            for (const vescomm_op_t op :
                 {VESCOMM_SUM, VESCOMM_AVERAGE, VESCOMM_PROD, VESCOMM_MIN, VESCOMM_MAX})
                if (op != VESCOMM_AVERAGE || is_float(type))
                    check_reduce(r, VectorLayout({3, 70, 0}), type, op);
    });
    for (const int ranks : rank_counts)
        run_device_ranks(ranks, device_options("peer"), [&](DeviceRank &r) {
            for (const auto &counts : shapes_with_large(ranks))
                check_reduce(r, VectorLayout(counts), VESCOMM_BF16, VESCOMM_AVERAGE);
        });
    EXPECT_EQ(take_violations(), "");
}

TEST(DevicePeers, SeveralBuffersShareACallAndAMemory) {
    run_device_ranks(3, device_options("peer"), [](DeviceRank &r) {
        void *memory = nullptr;
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 4096, &memory), VESCOMM_OK);
        {
            const VectorLayout layout({4, 12, 8});
            auto options = buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED);
            options.memory = memory;
            TestBuffer first(r, layout, options);
            options.offset_bytes = 1024;
            TestBuffer second(r, layout, options);
            vescomm_gpu_buffer_t *const both[] = {first.handle, second.handle};
            const auto value = [&](int rank) {
                return std::vector<float>(layout.count(rank), rank);
            };
            for (TestBuffer *one : {&first, &second}) one->write(r.rank, value(r.rank));
            ASSERT_EQ(vescomm_gpu_buffer_all_gather_v(both, 2, r.stream), VESCOMM_OK)
                << vescomm_get_last_error();
            ASSERT_EQ(vescomm_gpu_buffer_reduce_scatter_v(both, 2, VESCOMM_SUM, r.stream),
                      VESCOMM_OK);
            ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
            for (TestBuffer *one : {&first, &second})
                EXPECT_EQ(one->read<float>(r.rank),
                          std::vector<float>(layout.count(r.rank), 3.0f * r.rank));
        }
        EXPECT_EQ(vescomm_gpu_mfree(r.gpu, memory), VESCOMM_OK) << vescomm_get_last_error();
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DevicePeers, AGraphCanBeLaunchedAgain) {
    run_device_ranks(3, device_options("peer"), [](DeviceRank &r) {
        TestBuffer buffer(r, VectorLayout({4, 8, 12}),
                          buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
        CUgraph_st *graph = nullptr;
        CUgraphExec_st *exec = nullptr;
        ASSERT_EQ(cudaStreamBeginCapture(r.stream, 1), 0);
        ASSERT_EQ(vescomm_gpu_buffer_all_gather_v(&buffer.handle, 1, r.stream), VESCOMM_OK);
        ASSERT_EQ(vescomm_gpu_buffer_reduce_scatter_v(&buffer.handle, 1, VESCOMM_SUM, r.stream),
                  VESCOMM_OK);
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

TEST(DevicePeers, ReproducibleSumsAreMadeByKernelsOnly) {
    TestSetup setup = node_of_ranks(2);
    setup.config.reproducible = "yes";
    run_devices(setup, [](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options()), VESCOMM_OK);
        check_reduce(r, VectorLayout({5, 70}), VESCOMM_F32, VESCOMM_SUM);
        auto *data = r.array<float>(4);
        EXPECT_EQ(vescomm_gpu_all_reduce(r.gpu, data, data, 4, VESCOMM_F32, VESCOMM_SUM, r.stream),
                  VESCOMM_ERROR_UNSUPPORTED);
    });
    EXPECT_EQ(take_violations(), "");
}

// ---- where it does not suit ----

std::string explanation(DeviceRank &r) {
    TestBuffer buffer(r,
                      VectorLayout(std::vector<std::int64_t>(static_cast<std::size_t>(r.ranks), 4)),
                      buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
    const char *text = nullptr;
    EXPECT_EQ(vescomm_gpu_buffer_explain(buffer.handle, 1, &text), VESCOMM_OK);
    return text == nullptr ? "" : text;
}

TEST(DevicePeers, ExplanationsHaveTheReason) {
    run_device_ranks(1, device_options(), [](DeviceRank &r) {
        EXPECT_NE(explanation(r).find("peer: there is one rank"), std::string::npos);
    });
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        EXPECT_NE(explanation(r).find("peer: a kernel that reads"), std::string::npos);
    });
    setenv("GPU_DOUBLE_SYMMETRIC", "0", 1);
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        EXPECT_NE(explanation(r).find("peer: not all ranks can address"), std::string::npos)
            << explanation(r);
        EXPECT_EQ(vescomm_gpu_all_gather_v(r.gpu, VectorLayout({1, 1}), VESCOMM_F32, nullptr,
                                           r.array<float>(2), r.stream),
                  VESCOMM_OK);
    });
    unsetenv("GPU_DOUBLE_SYMMETRIC");
    run_device_ranks(2, device_options("peer"), [](DeviceRank &r) {
        EXPECT_EQ(vescomm_gpu_all_gather_v(r.gpu, VectorLayout({1, 1}), VESCOMM_F32, nullptr,
                                           r.array<float>(2), r.stream),
                  VESCOMM_ERROR_UNSUPPORTED);
        EXPECT_NE(std::string(vescomm_get_last_error()).find("it is for device buffers"),
                  std::string::npos);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DevicePeers, AnOldNcclHasOtherMethods) {
    for (const bool old_version : {true, false}) {
        GpuLibraries libraries = gpu_libraries();
        if (old_version) libraries.nccl_version = 22900;
        else libraries.nccl.get_peer_device_pointer = nullptr;
        run_devices(node_of_ranks(2), [&](DeviceRank &r) {
            const auto comm = DeviceCommunicator::create(r.parent.value, {}, libraries);
            EXPECT_EQ(comm->why_no_peers(),
                      "NCCL before 2.29.2 has no addresses of other ranks' memory");
        });
    }
    EXPECT_EQ(take_violations(), "");
}

// ---- failures ----

TEST(DevicePeers, NoKernelWaitsForARankThatHasFailed) {
    expect_no_wait_for_a_failed_rank("peer");
}

TEST(DevicePeers, AFailedLaunchReachesAllRanks) {
    std::barrier<> all(2);
    run_device_ranks(2, device_options("peer"), [&](DeviceRank &r) {
        TestBuffer buffer(r, VectorLayout({4, 8}), buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
        all.arrive_and_wait();
        if (r.rank == 0) gpu_double::fail_call("cudaLaunchKernel", 0, 700);
        all.arrive_and_wait();
        vescomm_status_t status = vescomm_gpu_buffer_all_gather_v(&buffer.handle, 1, r.stream);
        if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
        EXPECT_EQ(status, VESCOMM_ERROR_SYSTEM);
        EXPECT_NE(std::string(vescomm_get_last_error()).find("could not launch"), std::string::npos)
            << vescomm_get_last_error();
        all.arrive_and_wait();
    });
    gpu_double::fail_call("", 0, 0);
    EXPECT_EQ(take_violations(), "");
}

}  // namespace
}  // namespace vescomm::internal
