// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Collectives on device memory between processes, on real GPUs. Run by vescomm-run with any number
// of ranks; GPUs may be shared (NCCL 2.30.3 and later, NCCL_MULTI_RANK_GPU_ENABLE=1). All ranks run
// the same tests in the same order.
//
// With an argument it tests one failure instead, after which the communicator cannot be used:
//
//     timeout   only rank 0 makes a call
//     death     rank 1 ends, after calls that have connected NCCL
//     connect   rank 1 ends before the first call, in which NCCL connects
//     copies    as death, and the calls are made by the copy engines
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "gpu/loaded_cuda.h"
#include "vescomm/gpu.h"
#include "vescomm/gpu_kernels.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;

vescomm_comm_t *world = nullptr;
int rank = 0, ranks = 1;

#define ASSERT_OK(call) ASSERT_EQ(call, VESCOMM_OK) << vescomm_get_last_error()

using Counts = std::vector<std::int64_t>;

// Equal, ragged, with empty shards, of one owner, none at all, and some that NCCL divides.
std::vector<Counts> shapes() {
    std::vector<Counts> all(7);
    for (std::int64_t k = 0; k < ranks; ++k) {
        all[0].push_back(4);
        all[1].push_back(3 + 5 * k);
        all[2].push_back(k % 2 == 0 ? 0 : 7 * k);
        all[3].push_back(k == ranks / 2 ? 33 : 0);
        all[4].push_back(0);
        all[5].push_back(100000 + 70000 * k);
        all[6].push_back(1 << 18);
    }
    return all;
}

struct LayoutOf {
    explicit LayoutOf(const Counts &counts) {
        EXPECT_EQ(vescomm_layout_create_from_counts(counts.data(), ranks, &value), VESCOMM_OK);
        begins.push_back(0);
        for (const std::int64_t count : counts)
            begins.push_back(begins.back() + static_cast<std::size_t>(count));
    }
    ~LayoutOf() { vescomm_layout_free(value); }
    LayoutOf(const LayoutOf &) = delete;
    LayoutOf &operator=(const LayoutOf &) = delete;

    std::size_t elements() const { return begins.back(); }
    std::size_t begin(int of) const { return begins[static_cast<std::size_t>(of)]; }
    std::size_t count(int of) const { return begin(of + 1) - begin(of); }

    vescomm_layout_t *value = nullptr;
    std::vector<std::size_t> begins;
};

// Small integers: sums of any order are exact.
float value(int of, std::size_t element) {
    return static_cast<float>(of + 1) * 100 + static_cast<float>(element % 1000);
}

std::vector<float> whole_of(const LayoutOf &layout) {
    std::vector<float> all(layout.elements());
    for (int k = 0; k < ranks; ++k)
        for (std::size_t i = layout.begin(k); i < layout.begin(k + 1); ++i) all[i] = value(k, i);
    return all;
}

std::vector<float> own_part(const LayoutOf &layout, const std::vector<float> &whole) {
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(layout.begin(rank));
    return {begin, begin + static_cast<std::ptrdiff_t>(layout.count(rank))};
}

std::vector<float> contribution(const LayoutOf &layout) {
    std::vector<float> mine(layout.elements());
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = value(rank, i);
    return mine;
}

std::vector<float> own_sums(const LayoutOf &layout) {
    std::vector<float> sums;
    for (std::size_t i = layout.begin(rank); i < layout.begin(rank + 1); ++i) {
        sums.push_back(0);
        for (int k = 0; k < ranks; ++k) sums.back() += value(k, i);
    }
    return sums;
}

int device_of_rank() {
    int devices = 1;
    EXPECT_EQ(loaded_cuda().cudaGetDeviceCount(&devices), 0);
    return rank % devices;
}

class GpuRanks : public testing::Test {
protected:
    void create(const char *method = nullptr) {
        vescomm_gpu_comm_options_t options = vescomm_gpu_comm_options_init();
        options.method = method;
        options.workspace_bytes = 32 << 20;
        ASSERT_OK(vescomm_gpu_comm_create(world, &options, &gpu));
    }
    void TearDown() override {
        EXPECT_EQ(vescomm_gpu_comm_free(gpu), VESCOMM_OK) << vescomm_get_last_error();
    }
    void wait() { ASSERT_OK(vescomm_gpu_wait(gpu, device.stream)); }

    LoadedDevice device{device_of_rank()};
    vescomm_gpu_comm_t *gpu = nullptr;
};

class Methods : public GpuRanks, public testing::WithParamInterface<const char *> {
protected:
    std::string method() const { return GetParam(); }
    bool suits(const Counts &counts, bool reduces) const {
        const bool equal = *std::ranges::max_element(counts) == *std::ranges::min_element(counts);
        if (method() == "equal" || method() == "padded_in_place") return equal;
        return !reduces || method() != "messages";
    }
    bool is_direct() const { return method() == "peer" || method() == "copy_engine"; }
    // True if this rank can read the memory of other ranks; otherwise `why` says what is missing.
    bool has_peers() {
        const LayoutOf layout(Counts(static_cast<std::size_t>(ranks), 4));
        vescomm_gpu_buffer_t *buffer = nullptr;
        const char *text = nullptr;
        EXPECT_EQ(vescomm_gpu_buffer_create(gpu, layout.value, nullptr, &buffer), VESCOMM_OK);
        const auto status = vescomm_gpu_buffer_explain(buffer, 0, &text);
        if (status != VESCOMM_OK) why = vescomm_get_last_error();
        EXPECT_EQ(vescomm_gpu_buffer_free(buffer), VESCOMM_OK);
        return status == VESCOMM_OK;
    }
    std::string why;
    void create_with_method() { create(method() == "any" ? nullptr : GetParam()); }
};

TEST_P(Methods, AllGatherV) {
    create_with_method();
    for (const Counts &counts : shapes()) {
        const LayoutOf layout(counts);
        const std::vector<float> expected = whole_of(layout), own = own_part(layout, expected);
        for (const bool in_place : {true, false}) {
            SCOPED_TRACE(testing::Message() << layout.elements() << (in_place ? " in" : " out"));
            float *all = device.upload(std::vector<float>(layout.elements(), -1));
            float *source = in_place ? all + layout.begin(rank) : device.array<float>(own.size());
            device.write(source, own);
            const auto status = vescomm_gpu_all_gather_v(
                gpu, layout.value, VESCOMM_F32, in_place ? nullptr : source, all, device.stream);
            if (!suits(counts, false)) {
                EXPECT_EQ(status, VESCOMM_ERROR_UNSUPPORTED);
                continue;
            }
            ASSERT_OK(status);
            wait();
            EXPECT_TRUE(device.read(all, layout.elements()) == expected);
        }
        device.free_arrays();
    }
}

TEST_P(Methods, ReduceScatterV) {
    create_with_method();
    for (const Counts &counts : shapes()) {
        const LayoutOf layout(counts);
        const std::vector<float> mine = contribution(layout), expected = own_sums(layout);
        for (const bool in_place : {true, false}) {
            SCOPED_TRACE(testing::Message() << layout.elements() << (in_place ? " in" : " out"));
            float *all = device.upload(mine);
            float *output =
                in_place ? all + layout.begin(rank) : device.array<float>(expected.size());
            const auto status =
                vescomm_gpu_reduce_scatter_v(gpu, layout.value, VESCOMM_F32, VESCOMM_SUM, all,
                                             in_place ? nullptr : output, device.stream);
            if (!suits(counts, true)) {
                EXPECT_EQ(status, VESCOMM_ERROR_UNSUPPORTED);
                continue;
            }
            ASSERT_OK(status);
            wait();
            EXPECT_TRUE(device.read(output, expected.size()) == expected);
            if (!in_place) {
                EXPECT_TRUE(device.read(all, mine.size()) == mine);
            }
        }
        device.free_arrays();
    }
}

INSTANTIATE_TEST_SUITE_P(GpuRanks, Methods,
                         testing::Values("any", "equal", "padded_in_place", "padded", "rooted",
                                         "messages"),
                         [](const auto &info) { return std::string(info.param); });

TEST_F(GpuRanks, AllReduceAndBroadcast) {
    create();
    const std::vector<vescomm_type_t> types = {VESCOMM_F32, VESCOMM_F64, VESCOMM_I32,
                                               VESCOMM_I64, VESCOMM_U8,  VESCOMM_BF16};
    for (const std::size_t count : {std::size_t{3}, std::size_t{100001}}) {
        std::vector<float> mine(count, static_cast<float>(rank + 1));
        float *data = device.upload(mine), *sum = device.array<float>(count);
        ASSERT_OK(vescomm_gpu_all_reduce(gpu, data, sum, static_cast<std::int64_t>(count),
                                         VESCOMM_F32, VESCOMM_SUM, device.stream));
        wait();
        const auto expected = static_cast<float>(ranks * (ranks + 1) / 2);
        EXPECT_TRUE(device.read(sum, count) == std::vector<float>(count, expected));
        ASSERT_OK(vescomm_gpu_broadcast(gpu, data, static_cast<std::int64_t>(count), VESCOMM_F32,
                                        ranks - 1, device.stream));
        wait();
        EXPECT_TRUE(device.read(data, count) ==
                    std::vector<float>(count, static_cast<float>(ranks)));
    }
    for (const vescomm_type_t type : types) {
        std::vector<unsigned char> zero(64 * vescomm_type_get_bytes(type), 0);
        unsigned char *data = device.upload(zero);
        ASSERT_OK(vescomm_gpu_all_reduce(gpu, data, data, 64, type, VESCOMM_MAX, device.stream))
            << type;
        wait();
        EXPECT_EQ(device.read(data, zero.size()), zero) << type;
    }
}

// The statements of gpu.h about operators of NCCL.
TEST_F(GpuRanks, MinimumIgnoresNanAndTheAverageRoundsItsFactor) {
    create();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    float *data = device.upload(std::vector<float>{rank == 0 ? nan : 1.0f, 2.0f});
    float *result = device.array<float>(2);
    for (const vescomm_op_t op : {VESCOMM_MIN, VESCOMM_MAX}) {
        ASSERT_OK(vescomm_gpu_all_reduce(gpu, data, result, 2, VESCOMM_F32, op, device.stream));
        wait();
        const std::vector<float> values = device.read(result, 2);
        if (ranks > 1) {
            EXPECT_EQ(values[0], 1.0f);
        }
        EXPECT_EQ(values[1], 2.0f);
    }
    const std::uint16_t bf16 = 0x3fe0;  // 1.75
    std::uint16_t *narrow = device.upload(std::vector<std::uint16_t>(8, bf16));
    ASSERT_OK(vescomm_gpu_all_reduce(gpu, narrow, narrow, 8, VESCOMM_BF16, VESCOMM_AVERAGE,
                                     device.stream));
    wait();
    const std::uint16_t expected = ranks == 3 ? 0x3fe1 : bf16;
    if (ranks < 5) {
        EXPECT_EQ(device.read(narrow, 8), std::vector<std::uint16_t>(8, expected));
    }
}

class BufferMethods : public Methods {};

TEST_P(BufferMethods, SeveralBuffersAreGatheredAndReducedInOneCall) {
    create_with_method();
    if (is_direct() && !has_peers()) GTEST_SKIP() << why;
    std::vector<std::unique_ptr<LayoutOf>> layouts;
    for (const Counts &counts : shapes()) layouts.push_back(std::make_unique<LayoutOf>(counts));
    for (const auto placement : {VESCOMM_GPU_PACKED, VESCOMM_GPU_STRIDED}) {
        vescomm_gpu_buffer_options_t options = vescomm_gpu_buffer_options_init();
        options.placement = placement;
        options.any_cuts = 1;
        std::vector<vescomm_gpu_buffer_t *> buffers(layouts.size());
        const auto shard = [&](std::size_t k, int of) {
            vescomm_view_t view = {};
            EXPECT_EQ(vescomm_gpu_buffer_get_shard(buffers[k], of, &view), VESCOMM_OK);
            return static_cast<float *>(view.data);
        };
        for (std::size_t k = 0; k < layouts.size(); ++k) {
            ASSERT_OK(vescomm_gpu_buffer_create(gpu, layouts[k]->value, &options, &buffers[k]));
            if (layouts[k]->count(rank) != 0)
                device.write(shard(k, rank), own_part(*layouts[k], whole_of(*layouts[k])));
        }
        ASSERT_OK(vescomm_gpu_buffer_all_gather_v(buffers.data(), buffers.size(), device.stream));
        wait();
        for (std::size_t k = 0; k < layouts.size(); ++k) {
            const LayoutOf &layout = *layouts[k];
            const std::vector<float> expected = whole_of(layout);
            for (int of = 0; of < ranks; ++of) {
                if (layout.count(of) == 0) continue;
                const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(layout.begin(of));
                EXPECT_TRUE(device.read(shard(k, of), layout.count(of)) ==
                            std::vector<float>(
                                begin, begin + static_cast<std::ptrdiff_t>(layout.count(of))))
                    << k;
            }
            const std::vector<float> mine = contribution(layout);
            for (int of = 0; of < ranks; ++of) {
                if (layout.count(of) == 0) continue;
                const auto begin = mine.begin() + static_cast<std::ptrdiff_t>(layout.begin(of));
                device.write(shard(k, of),
                             std::vector<float>(
                                 begin, begin + static_cast<std::ptrdiff_t>(layout.count(of))));
            }
        }
        ASSERT_OK(vescomm_gpu_buffer_reduce_scatter_v(buffers.data(), buffers.size(), VESCOMM_SUM,
                                                      device.stream));
        wait();
        for (std::size_t k = 0; k < layouts.size(); ++k) {
            if (layouts[k]->count(rank) == 0) continue;
            EXPECT_TRUE(device.read(shard(k, rank), layouts[k]->count(rank)) ==
                        own_sums(*layouts[k]))
                << k;
        }
        const char *text = nullptr;
        ASSERT_OK(vescomm_gpu_buffer_explain(buffers[5], 1, &text));
        if (rank == 0) std::printf("%s\n", text);
        for (vescomm_gpu_buffer_t *buffer : buffers) ASSERT_OK(vescomm_gpu_buffer_free(buffer));
    }
}

INSTANTIATE_TEST_SUITE_P(GpuRanks, BufferMethods,
                         testing::Values("any", "rooted", "peer", "copy_engine"),
                         [](const auto &info) { return std::string(info.param); });

// A graph of kernels or copies that read the memory of other ranks.
TEST_P(BufferMethods, AGraphOfABufferCanBeLaunchedAgain) {
    create_with_method();
    if (is_direct() && !has_peers()) GTEST_SKIP() << why;
    const LoadedCuda &cuda = loaded_cuda();
    const LayoutOf layout(shapes()[5]);
    vescomm_gpu_buffer_t *buffer = nullptr;
    ASSERT_OK(vescomm_gpu_buffer_create(gpu, layout.value, nullptr, &buffer));
    vescomm_view_t view = {};
    ASSERT_OK(vescomm_gpu_buffer_get_shard(buffer, rank, &view));
    auto *shard = static_cast<float *>(view.data);
    CUgraph_st *graph = nullptr;
    CUgraphExec_st *exec = nullptr;
    ASSERT_EQ(cuda.cudaStreamBeginCapture(device.stream, 1), 0);
    ASSERT_OK(vescomm_gpu_buffer_all_gather_v(&buffer, 1, device.stream));
    ASSERT_OK(vescomm_gpu_buffer_reduce_scatter_v(&buffer, 1, VESCOMM_SUM, device.stream));
    ASSERT_EQ(cuda.cudaStreamEndCapture(device.stream, &graph), 0);
    ASSERT_EQ(cuda.cudaGraphInstantiateWithFlags(&exec, graph, 0), 0);
    for (int launch = 1; launch <= 3; ++launch) {
        const auto value = static_cast<float>(launch + rank);
        device.write(shard, std::vector<float>(layout.count(rank), value));
        ASSERT_EQ(cuda.cudaGraphLaunch(exec, device.stream), 0);
        wait();
        EXPECT_TRUE(device.read(shard, layout.count(rank)) ==
                    std::vector<float>(layout.count(rank), value * static_cast<float>(ranks)));
    }
    EXPECT_EQ(cuda.cudaGraphExecDestroy(exec), 0);
    EXPECT_EQ(cuda.cudaGraphDestroy(graph), 0);
    ASSERT_OK(vescomm_gpu_buffer_free(buffer));
}

// A graph that gathers, doubles and reduces, launched several times with other values.
TEST_F(GpuRanks, AGraphCanBeLaunchedAgain) {
    create();
    const LoadedCuda &cuda = loaded_cuda();
    const LayoutOf layout(shapes()[5]);
    const auto elements = static_cast<std::int64_t>(layout.elements());
    void *memory = nullptr;
    ASSERT_OK(vescomm_gpu_malloc(gpu, layout.elements() * sizeof(float), &memory));
    auto *all = static_cast<float *>(memory);
    ASSERT_OK(vescomm_gpu_check_kernels());
    CUgraph_st *graph = nullptr;
    CUgraphExec_st *exec = nullptr;
    const vescomm_gpu_piece_t piece = {0, 0, elements};
    ASSERT_EQ(cuda.cudaStreamBeginCapture(device.stream, 1), 0);
    ASSERT_OK(
        vescomm_gpu_all_gather_v(gpu, layout.value, VESCOMM_F32, nullptr, all, device.stream));
    ASSERT_OK(vescomm_gpu_scale(all, VESCOMM_F32, 2, &piece, 1, device.stream));
    ASSERT_OK(vescomm_gpu_reduce_scatter_v(gpu, layout.value, VESCOMM_F32, VESCOMM_SUM, all,
                                           nullptr, device.stream));
    ASSERT_EQ(cuda.cudaStreamEndCapture(device.stream, &graph), 0);
    ASSERT_EQ(cuda.cudaGraphInstantiateWithFlags(&exec, graph, 0), 0);
    const std::vector<float> own = own_part(layout, whole_of(layout));
    for (int launch = 1; launch <= 3; ++launch) {
        std::vector<float> values = own, expected = own;
        for (float &x : values) x *= static_cast<float>(launch);
        for (float &x : expected) x *= static_cast<float>(2 * launch * ranks);
        device.write(all + layout.begin(rank), values);
        ASSERT_EQ(cuda.cudaGraphLaunch(exec, device.stream), 0);
        wait();
        EXPECT_TRUE(device.read(all + layout.begin(rank), own.size()) == expected) << launch;
    }
    EXPECT_EQ(cuda.cudaGraphExecDestroy(exec), 0);
    EXPECT_EQ(cuda.cudaGraphDestroy(graph), 0);
    ASSERT_OK(vescomm_gpu_mfree(gpu, memory));
}

TEST_F(GpuRanks, StreamsAreOrderedByEvents) {
    create();
    const LoadedCuda &cuda = loaded_cuda();
    LoadedDevice second(device_of_rank());
    CUevent_st *event = nullptr;
    ASSERT_EQ(cuda.cudaEventCreateWithFlags(&event, 2), 0);
    const LayoutOf layout(shapes()[5]);
    const std::vector<float> expected = whole_of(layout);
    float *all = device.upload(std::vector<float>(layout.elements(), -1));
    device.write(all + layout.begin(rank), own_part(layout, expected));
    for (int turn = 0; turn < 10; ++turn) {
        LoadedDevice &from = turn % 2 == 0 ? device : second;
        LoadedDevice &to = turn % 2 == 0 ? second : device;
        ASSERT_OK(
            vescomm_gpu_all_gather_v(gpu, layout.value, VESCOMM_F32, nullptr, all, from.stream));
        ASSERT_EQ(cuda.cudaEventRecord(event, from.stream), 0);
        ASSERT_EQ(cuda.cudaStreamWaitEvent(to.stream, event, 0), 0);
    }
    wait();
    EXPECT_TRUE(device.read(all, layout.elements()) == expected);
    EXPECT_EQ(cuda.cudaEventDestroy(event), 0);
}

// Returns the exit code: 0 if this rank has the error of the failure.
int test_failure(const std::string &failure) {
    LoadedDevice device(device_of_rank());
    vescomm_gpu_comm_t *gpu = nullptr;
    vescomm_gpu_comm_options_t options = vescomm_gpu_comm_options_init();
    const bool copies = failure == "copies";
    options.method = copies ? "copy_engine" : nullptr;
    if (vescomm_gpu_comm_create(world, &options, &gpu) != VESCOMM_OK) {
        std::printf("%s\n", vescomm_get_last_error());
        return 1;
    }
    float *data = device.upload(std::vector<float>(1 << 20, 1.0f));
    const LayoutOf layout(shapes()[5]);
    vescomm_gpu_buffer_t *buffer = nullptr;
    if (copies && vescomm_gpu_buffer_create(gpu, layout.value, nullptr, &buffer) != VESCOMM_OK)
        return 1;
    const auto call = [&] {
        if (copies) {
            const auto status = vescomm_gpu_buffer_all_gather_v(&buffer, 1, device.stream);
            return status != VESCOMM_OK ? status : vescomm_gpu_wait(gpu, device.stream);
        }
        const auto status = vescomm_gpu_all_reduce(gpu, data, data, 1 << 20, VESCOMM_F32,
                                                   VESCOMM_SUM, device.stream);
        return status != VESCOMM_OK ? status : vescomm_gpu_wait(gpu, device.stream);
    };
    if (failure != "connect")
        if (const auto first = call(); first != VESCOMM_OK) {
            std::printf("skipped: %s\n", vescomm_get_last_error());
            return copies && first == VESCOMM_ERROR_UNSUPPORTED ? 77 : 1;
        }
    // Fails where the death of rank 1 is found first.
    if (failure != "connect") vescomm_barrier(world);
    if (rank == 1 && failure != "timeout") _exit(0);
    vescomm_status_t status = VESCOMM_OK;
    if (rank == 0 || failure != "timeout") status = call();
    else
        while (status == VESCOMM_OK) status = vescomm_gpu_comm_check(gpu);
    std::printf("%s\n", vescomm_get_last_error());
    const auto expected = failure == "timeout" ? VESCOMM_ERROR_TIMEOUT : VESCOMM_ERROR_PEER_FAILED;
    if (vescomm_gpu_buffer_free(buffer) != VESCOMM_OK) return 1;
    return vescomm_gpu_comm_free(gpu) == VESCOMM_OK && status == expected ? 0 : 1;
}

}  // namespace
}  // namespace vescomm::internal

int main(int argc, char **argv) {
    using namespace vescomm::internal;
    testing::InitGoogleTest(&argc, argv);
    std::int32_t version = 0;
    if (vescomm_gpu_check_support(&version) != VESCOMM_OK) {
        std::printf("skipped: %s\n", vescomm_get_last_error());
        return 77;
    }
    vescomm_comm_info_t info = vescomm_comm_info_init();
    if (vescomm_comm_create_from_environment(nullptr, &world) != VESCOMM_OK ||
        vescomm_comm_get_info(world, &info) != VESCOMM_OK) {
        std::printf("%s\n", vescomm_get_last_error());
        return 1;
    }
    rank = info.rank;
    ranks = info.ranks;
    int devices = 0;
    if (testing_support::loaded_cuda().cudaGetDeviceCount(&devices) != 0) return 1;
    if (ranks > devices && version < 23003) {
        std::printf("skipped: %d GPUs, and this NCCL permits one rank on each\n", devices);
        return 77;
    }
    if (argc > 1) return test_failure(argv[1]);
    if (rank != 0) GTEST_FLAG_SET(brief, true);
    const int failed = RUN_ALL_TESTS();
    if (failed != 0) std::printf("rank %d failed\n", rank);
    return vescomm_comm_free(world) == VESCOMM_OK ? failed : 1;
}
