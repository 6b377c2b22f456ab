// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Device buffers: addresses, and collectives in place, on the test double.
#include <gtest/gtest.h>

#include <limits>

#include "gpu/device_placement.h"
#include "gpu/test_buffer.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using gpu_double::take_violations;

constexpr int rank_counts[] = {1, 2, 3, 5, 7};
constexpr vescomm_gpu_placement_t placements[] = {VESCOMM_GPU_PACKED, VESCOMM_GPU_STRIDED};

// The shapes of all tests, and divisions into equal shards whose last ones are short or empty.
std::vector<std::vector<std::int64_t>> buffer_shapes(int ranks) {
    auto all = shapes(ranks);
    std::vector<std::int64_t> chunks(static_cast<std::size_t>(ranks), 8);
    chunks.back() = 3;
    all.push_back(chunks);
    if (ranks > 2) {
        chunks[chunks.size() - 2] = 2;
        chunks.back() = 0;
        all.push_back(chunks);
    }
    return all;
}

// Any bits, also those of NaN.
std::vector<std::uint16_t> bits_of(int rank, std::size_t count) {
    std::vector<std::uint16_t> values;
    for (std::size_t i = 0; i < count; ++i)
        values.push_back(
            static_cast<std::uint16_t>(0x7f80 + 977 * rank + 131 * static_cast<int>(i)));
    return values;
}

// The contribution of a rank to the shard of another one; sums are exact in any order.
std::vector<float> terms_of(int rank, int shard, std::size_t count) {
    std::vector<float> values;
    for (std::size_t i = 0; i < count; ++i)
        values.push_back(static_cast<float>(1000 * (rank + 1) + 100 * shard) +
                         static_cast<float>(i));
    return values;
}

std::vector<float> sum_of(int ranks, int shard, std::size_t count) {
    std::vector<float> sum(count);
    for (int rank = 0; rank < ranks; ++rank) {
        const auto terms = terms_of(rank, shard, count);
        for (std::size_t i = 0; i < count; ++i) sum[i] += terms[i];
    }
    return sum;
}

bool suits(const char *method, const VectorLayout &layout, vescomm_type_t type,
           vescomm_gpu_placement_t placement, bool reduces) {
    if (method == nullptr) return true;
    const DevicePlacement places(layout.value.value, vescomm_type_get_bytes(type),
                                 placement == VESCOMM_GPU_STRIDED ? DevicePlacement::Kind::strided
                                                                  : DevicePlacement::Kind::packed);
    const std::string name = method;
    if (name == "padded_in_place") return places.stride() >= places.largest();
    return name != "messages" || !reduces;
}

void check_gather(TestBuffer &buffer, const VectorLayout &layout, bool works) {
    DeviceRank &r = buffer.rank;
    buffer.fill<std::uint16_t>(0xabcd);
    buffer.write(r.rank, bits_of(r.rank, layout.count(r.rank)));
    const auto status = vescomm_gpu_buffer_all_gather_v(&buffer.handle, 1, r.stream);
    EXPECT_EQ(status, works ? VESCOMM_OK : VESCOMM_ERROR_UNSUPPORTED) << vescomm_get_last_error();
    if (!works) return;
    ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK) << vescomm_get_last_error();
    for (int k = 0; k < r.ranks; ++k)
        EXPECT_EQ(buffer.read<std::uint16_t>(k), bits_of(k, layout.count(k)));
}

void check_reduce(TestBuffer &buffer, const VectorLayout &layout, bool works) {
    DeviceRank &r = buffer.rank;
    buffer.fill<float>(std::numeric_limits<float>::quiet_NaN());
    for (int k = 0; k < r.ranks; ++k) buffer.write(k, terms_of(r.rank, k, layout.count(k)));
    const auto status =
        vescomm_gpu_buffer_reduce_scatter_v(&buffer.handle, 1, VESCOMM_SUM, r.stream);
    EXPECT_EQ(status, works ? VESCOMM_OK : VESCOMM_ERROR_UNSUPPORTED) << vescomm_get_last_error();
    if (!works) return;
    ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK) << vescomm_get_last_error();
    EXPECT_EQ(buffer.read<float>(r.rank), sum_of(r.ranks, r.rank, layout.count(r.rank)));
}

// All methods give the same bits.
TEST(DeviceBuffers, CollectivesGiveTheirResultsByEveryMethod) {
    for (const int ranks : rank_counts)
        for (const char *method : {static_cast<const char *>(nullptr), "padded_in_place", "padded",
                                   "rooted", "messages"}) {
            SCOPED_TRACE(testing::Message() << ranks << " ranks, " << (method ? method : "any"));
            run_device_ranks(ranks, device_options(method), [&](DeviceRank &r) {
                for (const auto placement : placements)
                    for (const auto &counts : buffer_shapes(ranks)) {
                        const VectorLayout layout(counts);
                        TestBuffer words(r, layout, buffer_options(VESCOMM_BF16, placement));
                        ASSERT_EQ(words.status, VESCOMM_OK) << vescomm_get_last_error();
                        check_gather(words, layout,
                                     suits(method, layout, VESCOMM_BF16, placement, false));
                        TestBuffer floats(r, layout, buffer_options(VESCOMM_F32, placement));
                        ASSERT_EQ(floats.status, VESCOMM_OK) << vescomm_get_last_error();
                        check_reduce(floats, layout,
                                     suits(method, layout, VESCOMM_F32, placement, true));
                    }
            });
            EXPECT_EQ(take_violations(), "");
        }
}

// ---- addresses ----

TEST(DeviceBuffers, TensorsAndShardsHaveAddresses) {
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        const vescomm_layout layout{Layout({{.name = "a", .shape = {6}, .offset = 0, .block = 2},
                                            {.name = "b", .shape = {4}, .offset = 6},
                                            {.name = "none", .shape = {0}, .offset = 10}},
                                           10, {0, 4, 4, 10})};
        TestBuffer packed(r, &layout, buffer_options(VESCOMM_F64, VESCOMM_GPU_PACKED));
        TestBuffer strided(r, &layout, buffer_options(VESCOMM_F64, VESCOMM_GPU_STRIDED));
        ASSERT_EQ(packed.status, VESCOMM_OK) << vescomm_get_last_error();
        ASSERT_EQ(strided.status, VESCOMM_OK) << vescomm_get_last_error();
        const auto tensor = [](TestBuffer &buffer, std::size_t index, std::int64_t elements) {
            vescomm_view_t view = {};
            EXPECT_EQ(vescomm_gpu_buffer_get_tensor(buffer.handle, index, &view), VESCOMM_OK)
                << vescomm_get_last_error();
            EXPECT_EQ(view.elements, elements);
            return static_cast<double *>(view.data);
        };
        double *first = packed.whole<double>().data();
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 4096, 0u);
        EXPECT_EQ(packed.whole<double>().size(), 10u);
        EXPECT_EQ(tensor(packed, 0, 6), first);
        EXPECT_EQ(tensor(packed, 1, 4), first + 6);
        EXPECT_EQ(tensor(packed, 2, 0), first + 10);
        EXPECT_EQ(packed.shard<double>(1).data(), first + 4);
        EXPECT_EQ(packed.shard<double>(1).size(), 0u);
        EXPECT_EQ(packed.shard<double>(2).data(), first + 4);
        EXPECT_EQ(packed.shard<double>(2).size(), 6u);

        first = strided.whole<double>().data();
        EXPECT_EQ(strided.whole<double>().size(), 18u) << "with gaps";
        EXPECT_EQ(strided.shard<double>(2).data(), first + 12);
        EXPECT_EQ(tensor(strided, 1, 4), first + 14);
        EXPECT_EQ(tensor(strided, 2, 0), first + 18);
        vescomm_view_t view = {};
        EXPECT_EQ(vescomm_gpu_buffer_get_tensor(strided.handle, 0, &view),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(std::string(vescomm_get_last_error())
                      .find("tensor \"a\" of buffer \"buffer\" has elements of rank 0 and of later "
                            "ranks"),
                  std::string::npos)
            << vescomm_get_last_error();
        EXPECT_EQ(vescomm_gpu_buffer_get_tensor(packed.handle, 3, &view),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(vescomm_gpu_buffer_get_shard(packed.handle, 3, &view),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(vescomm_gpu_buffer_get_shard(packed.handle, -1, &view),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
    });
    EXPECT_EQ(take_violations(), "");
}

std::uint64_t bytes_of(const std::vector<std::int64_t> &counts, vescomm_gpu_placement_t placement) {
    const VectorLayout layout(counts);
    const auto options = buffer_options(VESCOMM_F32, placement);
    std::uint64_t bytes = 1;
    EXPECT_EQ(vescomm_gpu_buffer_get_bytes(layout, &options, &bytes), VESCOMM_OK);
    return bytes;
}

TEST(DeviceBuffers, TheirBytesAreKnownWithoutAGpu) {
    EXPECT_EQ(bytes_of({4, 4}, VESCOMM_GPU_PACKED), 32u);
    EXPECT_EQ(bytes_of({3, 5}, VESCOMM_GPU_PACKED), 32u);
    EXPECT_EQ(bytes_of({4, 1}, VESCOMM_GPU_PACKED), 32u) << "the second shard is short";
    EXPECT_EQ(bytes_of({3, 5}, VESCOMM_GPU_STRIDED), 64u);
    EXPECT_EQ(bytes_of({0, 0}, VESCOMM_GPU_STRIDED), 0u);
}

TEST(DeviceBuffers, ExplainTheirMemoryAndTheirMethods) {
    run_device_ranks(3, device_options("padded_in_place"), [](DeviceRank &r) {
        const VectorLayout layout({4, 0, 3});
        TestBuffer buffer(r, layout, buffer_options(VESCOMM_F32, VESCOMM_GPU_STRIDED));
        const char *text = nullptr;
        ASSERT_EQ(vescomm_gpu_buffer_explain(buffer.handle, 1, &text), VESCOMM_OK);
        EXPECT_EQ(
            std::string(text).find(
                "buffer \"buffer\": 48 bytes of f32, strided, shards at multiples of 16 bytes; "
                "a window of NCCL, symmetric if NCCL has symmetric memory between these devices\n"
                "reduce_scatter_v of 28 bytes over 3 ranks"),
            0u)
            << text;
        EXPECT_NE(std::string(text).find("method padded_in_place, because the options"),
                  std::string::npos)
            << text;
        EXPECT_NE(std::string(text).find("one ncclReduceScatter in place of 16 bytes from each "
                                         "rank, of which 20 bytes are padding"),
                  std::string::npos)
            << text;
    });
}

// ---- groups ----

TEST(DeviceBuffers, SeveralAreOneGroup) {
    for (const int ranks : rank_counts)
        for (const char *method : {static_cast<const char *>(nullptr), "padded", "rooted"}) {
            SCOPED_TRACE(testing::Message() << ranks << " ranks, " << (method ? method : "any"));
            run_device_ranks(ranks, device_options(method), [&](DeviceRank &r) {
                const auto all = buffer_shapes(ranks);
                const VectorLayout first(all[1]), second(all[2]), third(all.back());
                const VectorLayout *layouts[] = {&first, &second, &third};
                TestBuffer a(r, first, buffer_options(VESCOMM_BF16, VESCOMM_GPU_PACKED));
                TestBuffer b(r, second, buffer_options(VESCOMM_BF16, VESCOMM_GPU_STRIDED));
                TestBuffer c(r, third, buffer_options(VESCOMM_BF16, VESCOMM_GPU_PACKED));
                TestBuffer *buffers[] = {&a, &b, &c};
                vescomm_gpu_buffer_t *const handles[] = {a.handle, b.handle, c.handle};
                for (int k = 0; k < 3; ++k) {
                    buffers[k]->fill<std::uint16_t>(0xabcd);
                    buffers[k]->write(r.rank, bits_of(r.rank + k, layouts[k]->count(r.rank)));
                }
                EXPECT_EQ(calls_in(r, "ncclGroupEnd",
                                   [&] {
                                       EXPECT_EQ(
                                           vescomm_gpu_buffer_all_gather_v(handles, 3, r.stream),
                                           VESCOMM_OK)
                                           << vescomm_get_last_error();
                                   }),
                          ranks);
                ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
                for (int k = 0; k < 3; ++k)
                    for (int rank = 0; rank < ranks; ++rank)
                        EXPECT_EQ(buffers[k]->read<std::uint16_t>(rank),
                                  bits_of(rank + k, layouts[k]->count(rank)));

                TestBuffer d(r, first, buffer_options(VESCOMM_F32, VESCOMM_GPU_STRIDED));
                TestBuffer e(r, third, buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
                vescomm_gpu_buffer_t *const sums[] = {d.handle, e.handle};
                for (int k = 0; k < ranks; ++k) {
                    d.write(k, terms_of(r.rank, k, first.count(k)));
                    e.write(k, terms_of(r.rank, k + 1, third.count(k)));
                }
                EXPECT_EQ(vescomm_gpu_buffer_reduce_scatter_v(sums, 2, VESCOMM_SUM, r.stream),
                          VESCOMM_OK)
                    << vescomm_get_last_error();
                ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
                EXPECT_EQ(d.read<float>(r.rank), sum_of(ranks, r.rank, first.count(r.rank)));
                EXPECT_EQ(e.read<float>(r.rank), sum_of(ranks, r.rank + 1, third.count(r.rank)));
            });
            EXPECT_EQ(take_violations(), "");
        }
}

// Seven ranks with unaligned cuts: padding is predicted to be the fastest.
TEST(DeviceBuffers, AGroupDividesTheWorkspace) {
    std::vector<std::int64_t> counts;
    for (std::int64_t k = 0; k < 7; ++k) counts.push_back(3 + 5 * k);
    const VectorLayout layout(counts);
    const std::uint64_t needed = 7 * 144;
    for (const std::uint64_t workspace : {2 * needed, 2 * needed - 1})
        for (const char *method : {static_cast<const char *>(nullptr), "padded"}) {
            SCOPED_TRACE(testing::Message() << workspace << (method ? method : ""));
            run_device_ranks(7, device_options(method, workspace), [&](DeviceRank &r) {
                TestBuffer a(r, layout, buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
                TestBuffer b(r, layout, buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
                for (int k = 0; k < 7; ++k) {
                    a.write(k, terms_of(r.rank, k, layout.count(k)));
                    b.write(k, terms_of(r.rank, k + 1, layout.count(k)));
                }
                vescomm_gpu_buffer_t *const handles[] = {a.handle, b.handle};
                const bool fits = workspace == 2 * needed;
                const bool works = fits || method == nullptr;
                const int padded = calls_in(r, "ncclReduceScatter", [&] {
                    EXPECT_EQ(
                        vescomm_gpu_buffer_reduce_scatter_v(handles, 2, VESCOMM_SUM, r.stream),
                        works ? VESCOMM_OK : VESCOMM_ERROR_UNSUPPORTED)
                        << vescomm_get_last_error();
                });
                EXPECT_EQ(padded, !works ? 0 : fits ? 14 : 7);
                if (!works) {
                    EXPECT_NE(
                        std::string(vescomm_get_last_error())
                            .find("1008 are in use before buffer \"buffer\", which needs 1008"),
                        std::string::npos)
                        << vescomm_get_last_error();
                    return;
                }
                ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
                EXPECT_EQ(a.read<float>(r.rank), sum_of(7, r.rank, layout.count(r.rank)));
                EXPECT_EQ(b.read<float>(r.rank), sum_of(7, r.rank + 1, layout.count(r.rank)));
            });
            EXPECT_EQ(take_violations(), "");
        }
}

TEST(DeviceBuffers, CanBeCapturedIntoAGraph) {
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        const VectorLayout layout({2, 3, 1});
        TestBuffer a(r, layout, buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
        TestBuffer b(r, layout, buffer_options(VESCOMM_F32, VESCOMM_GPU_STRIDED));
        vescomm_gpu_buffer_t *const handles[] = {a.handle, b.handle};
        a.fill<float>(1);
        b.fill<float>(2);
        CUgraph_st *graph = nullptr;
        CUgraphExec_st *exec = nullptr;
        ASSERT_EQ(cudaStreamBeginCapture(r.stream, 1), 0);
        EXPECT_EQ(vescomm_gpu_buffer_reduce_scatter_v(handles, 2, VESCOMM_SUM, r.stream),
                  VESCOMM_OK)
            << vescomm_get_last_error();
        EXPECT_EQ(vescomm_gpu_buffer_all_gather_v(handles, 2, r.stream), VESCOMM_OK);
        ASSERT_EQ(cudaStreamEndCapture(r.stream, &graph), 0);
        ASSERT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), 0);
        for (int i = 0; i < 2; ++i) ASSERT_EQ(cudaGraphLaunch(exec, r.stream), 0);
        EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
        for (int k = 0; k < 3; ++k) {
            EXPECT_EQ(a.read<float>(k), std::vector<float>(layout.count(k), 9));
            EXPECT_EQ(b.read<float>(k), std::vector<float>(layout.count(k), 18));
        }
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(graph);
    });
    EXPECT_EQ(take_violations(), "");
}

}  // namespace
}  // namespace vescomm::internal
