// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Results of the collectives on device memory, on the test double.
#include <gtest/gtest.h>

#include <cmath>

#include "gpu/device_ranks.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using gpu_double::take_violations;

constexpr int rank_counts[] = {1, 2, 3, 5, 7};
constexpr const char *methods[] = {nullptr,  "equal",  "padded_in_place",
                                   "padded", "rooted", "messages"};

// The value of an element of a rank.
float value(int rank, std::size_t element) {
    return static_cast<float>(rank + 1) * 100 + static_cast<float>(element);
}

bool suits(const char *method, const std::vector<std::int64_t> &counts, bool reduces) {
    if (method == nullptr) return true;
    const bool equal = *std::ranges::max_element(counts) == *std::ranges::min_element(counts);
    // The memory of the caller has no gaps.
    if (std::string(method) == "equal" || std::string(method) == "padded_in_place") return equal;
    return !reduces || std::string(method) != "messages";
}

void check_all_gather_v(DeviceRank &r, const std::vector<std::int64_t> &counts, bool works) {
    const VectorLayout layout(counts);
    std::vector<float> expected(layout.elements());
    for (int k = 0; k < r.ranks; ++k)
        for (std::size_t i = layout.begin(k); i < layout.end(k); ++i) expected[i] = value(k, i);
    const std::vector<float> shard(
        expected.begin() + static_cast<std::ptrdiff_t>(layout.begin(r.rank)),
        expected.begin() + static_cast<std::ptrdiff_t>(layout.end(r.rank)));
    for (const bool in_place : {true, false}) {
        auto *all = r.upload(std::vector<float>(layout.elements(), -1));
        float *source = in_place ? all + layout.begin(r.rank) : r.array<float>(shard.size());
        if (!shard.empty()) r.write(source, shard);
        const auto status = vescomm_gpu_all_gather_v(r.gpu, layout, VESCOMM_F32,
                                                     in_place ? nullptr : source, all, r.stream);
        if (!works) {
            EXPECT_EQ(status, VESCOMM_ERROR_UNSUPPORTED);
            continue;
        }
        ASSERT_EQ(status, VESCOMM_OK) << vescomm_get_last_error();
        ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK) << vescomm_get_last_error();
        EXPECT_EQ(r.read(all, layout.elements()), expected);
        EXPECT_EQ(r.read(source, shard.size()), shard);
    }
}

void check_reduce_scatter_v(DeviceRank &r, const std::vector<std::int64_t> &counts, bool works) {
    const VectorLayout layout(counts);
    std::vector<float> mine(layout.elements());
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = value(r.rank, i);
    std::vector<float> expected;
    for (std::size_t i = layout.begin(r.rank); i < layout.end(r.rank); ++i) {
        expected.push_back(0);
        for (int k = 0; k < r.ranks; ++k) expected.back() += value(k, i);
    }
    for (const bool in_place : {true, false}) {
        auto *all = r.upload(mine);
        float *output = in_place ? all + layout.begin(r.rank) : r.array<float>(expected.size());
        const auto status = vescomm_gpu_reduce_scatter_v(
            r.gpu, layout, VESCOMM_F32, VESCOMM_SUM, all, in_place ? nullptr : output, r.stream);
        if (!works) {
            EXPECT_EQ(status, VESCOMM_ERROR_UNSUPPORTED);
            continue;
        }
        ASSERT_EQ(status, VESCOMM_OK) << vescomm_get_last_error();
        ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK) << vescomm_get_last_error();
        EXPECT_EQ(r.read(output, expected.size()), expected);
        if (!in_place) {
            EXPECT_EQ(r.read(all, mine.size()), mine);
        }
    }
}

TEST(DeviceCollectives, RaggedOnesGiveTheirResultsByEveryMethod) {
    for (const int ranks : rank_counts)
        for (const char *method : methods) {
            SCOPED_TRACE(testing::Message() << ranks << " ranks, " << (method ? method : "any"));
            run_device_ranks(ranks, device_options(method), [&](DeviceRank &r) {
                for (const auto &counts : shapes(ranks)) {
                    check_all_gather_v(r, counts, suits(method, counts, false));
                    check_reduce_scatter_v(r, counts, suits(method, counts, true));
                }
            });
            EXPECT_EQ(take_violations(), "");
        }
}

TEST(DeviceCollectives, RaggedOnesMoveEveryType) {
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        const VectorLayout layout({2, 0, 3});
        for (vescomm_type_t type = VESCOMM_F32; type <= VESCOMM_C128; ++type) {
            const std::size_t bytes = vescomm_type_get_bytes(type);
            std::vector<unsigned char> mine(layout.elements() * bytes), expected(mine.size());
            for (int k = 0; k < r.ranks; ++k)
                for (std::size_t i = layout.begin(k) * bytes; i < layout.end(k) * bytes; ++i) {
                    expected[i] = static_cast<unsigned char>(1 + k + i);
                    if (k == r.rank) mine[i] = expected[i];
                }
            auto *all = r.upload(mine);
            ASSERT_EQ(vescomm_gpu_all_gather_v(r.gpu, layout, type, nullptr, all, r.stream),
                      VESCOMM_OK);
            ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
            EXPECT_EQ(r.read(all, mine.size()), expected) << "type " << type;
            all = r.upload(r.rank == 2 ? expected : mine);
            ASSERT_EQ(vescomm_gpu_broadcast(r.gpu, all, 5, type, 2, r.stream), VESCOMM_OK);
            EXPECT_EQ(r.read(all, mine.size()), expected);
        }
    });
    EXPECT_EQ(take_violations(), "");
}

template <typename T>
void check_all_reduce(DeviceRank &r, vescomm_type_t type, const std::vector<vescomm_op_t> &ops) {
    for (const vescomm_op_t op : ops)
        for (const bool in_place : {true, false}) {
            auto *source = r.upload(std::vector<T>{static_cast<T>(r.rank + 1), 2});
            T *output = in_place ? source : r.array<T>(2);
            ASSERT_EQ(vescomm_gpu_all_reduce(r.gpu, source, output, 2, type, op, r.stream),
                      VESCOMM_OK)
                << vescomm_get_last_error();
            // Three ranks contribute 1, 2, 3 and 2, 2, 2.
            const std::vector<T> expected = op == VESCOMM_SUM    ? std::vector<T>{6, 6}
                                            : op == VESCOMM_PROD ? std::vector<T>{6, 8}
                                            : op == VESCOMM_MIN  ? std::vector<T>{1, 2}
                                            : op == VESCOMM_MAX  ? std::vector<T>{3, 2}
                                                                 : std::vector<T>{2, 2};
            EXPECT_EQ(r.read(output, 2), expected) << "type " << type << ", operator " << op;
        }
}

TEST(DeviceCollectives, AllReduceHasTypesAndOperators) {
    const std::vector<vescomm_op_t> integers = {VESCOMM_SUM, VESCOMM_PROD, VESCOMM_MIN,
                                                VESCOMM_MAX};
    std::vector<vescomm_op_t> floats = integers;
    floats.push_back(VESCOMM_AVERAGE);
    run_device_ranks(3, device_options(), [&](DeviceRank &r) {
        check_all_reduce<float>(r, VESCOMM_F32, floats);
        check_all_reduce<double>(r, VESCOMM_F64, floats);
        check_all_reduce<std::int8_t>(r, VESCOMM_I8, integers);
        check_all_reduce<std::uint8_t>(r, VESCOMM_U8, integers);
        check_all_reduce<std::int32_t>(r, VESCOMM_I32, integers);
        check_all_reduce<std::uint32_t>(r, VESCOMM_U32, integers);
        check_all_reduce<std::int64_t>(r, VESCOMM_I64, integers);
        check_all_reduce<std::uint64_t>(r, VESCOMM_U64, integers);
        // 1, 1 and 1: bf16 and f16.
        for (const auto &[type, one, three] :
             {std::tuple{VESCOMM_BF16, 0x3f80, 0x4040}, std::tuple{VESCOMM_F16, 0x3c00, 0x4200}}) {
            auto *data = r.upload(std::vector<std::uint16_t>{static_cast<std::uint16_t>(one)});
            ASSERT_EQ(vescomm_gpu_all_reduce(r.gpu, data, data, 1, type, VESCOMM_SUM, r.stream),
                      VESCOMM_OK);
            EXPECT_EQ(r.read(data, 1)[0], three);
        }
    });
    EXPECT_EQ(take_violations(), "");
}

// NCCL's own rules, which gpu.h states: they differ from those of vescomm.h.
TEST(DeviceCollectives, ReduceByTheRulesOfNccl) {
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        const float nan = std::nanf("");
        const auto reduce = [&]<typename T>(std::vector<T> values, vescomm_type_t type,
                                            vescomm_op_t op) {
            auto *data = r.upload(values);
            EXPECT_EQ(
                vescomm_gpu_all_reduce(r.gpu, data, data, static_cast<std::int64_t>(values.size()),
                                       type, op, r.stream),
                VESCOMM_OK);
            return r.read(data, values.size());
        };
        // Every rank contributes NaN to the first element, rank 1 alone to the second.
        const float some = r.rank == 1 ? nan : static_cast<float>(r.rank);
        for (const vescomm_op_t op : {VESCOMM_MIN, VESCOMM_MAX}) {
            const auto result = reduce(std::vector<float>{nan, some}, VESCOMM_F32, op);
            EXPECT_TRUE(std::isnan(result[0]));
            EXPECT_EQ(result[1], op == VESCOMM_MIN ? 0 : 2) << "NaN is ignored";
        }
        EXPECT_TRUE(std::isnan(reduce(std::vector<float>{some}, VESCOMM_F32, VESCOMM_SUM)[0]));
        // Three times 1.75 in bf16: each product with 1/3 is rounded.
        EXPECT_EQ(reduce(std::vector<std::uint16_t>{0x3fe0}, VESCOMM_BF16, VESCOMM_AVERAGE)[0],
                  0x3fe1)
            << "1.7578125";
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceCollectives, EqualShardsTakeOneCallOfEachRank) {
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        const VectorLayout layout({4, 4, 4});
        auto *all = r.array<float>(12);
        const auto gather = [&] {
            EXPECT_EQ(vescomm_gpu_all_gather_v(r.gpu, layout, VESCOMM_F32, nullptr, all, r.stream),
                      VESCOMM_OK);
        };
        EXPECT_EQ(calls_in(r, "ncclAllGather", gather), 3);
        EXPECT_EQ(calls_in(r, "cudaMemcpyAsync", gather), 0);
        EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
    });
}

TEST(DeviceCollectives, EmptyShardsTakeNoCall) {
    run_device_ranks(3, device_options("rooted"), [](DeviceRank &r) {
        const VectorLayout layout({4, 0, 5});
        auto *all = r.array<float>(9);
        EXPECT_EQ(calls_in(r, "ncclReduce",
                           [&] {
                               EXPECT_EQ(vescomm_gpu_reduce_scatter_v(r.gpu, layout, VESCOMM_F32,
                                                                      VESCOMM_SUM, all, nullptr,
                                                                      r.stream),
                                         VESCOMM_OK);
                           }),
                  6);
        EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
    });
}

// ---- streams ----

TEST(DeviceCollectives, FollowTheirStreamWithoutAWaitOfTheHost) {
    for (const char *method : methods) {
        if (!suits(method, {5, 0, 3}, false)) continue;
        run_device_ranks(3, device_options(method), [](DeviceRank &r) {
            const VectorLayout layout({5, 0, 3});
            auto *all = r.array<float>(8);
            auto *copy = r.array<float>(8);
            const auto run = [&] {
                const std::size_t begin = layout.begin(r.rank), count = layout.count(r.rank);
                gpu_double::launch(r.stream, "fill", {{all + begin, 4 * count, true}}, [=] {
                    auto *bytes = static_cast<float *>(gpu_double::host_view(all + begin));
                    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<float>(i);
                });
                EXPECT_EQ(
                    vescomm_gpu_all_gather_v(r.gpu, layout, VESCOMM_F32, nullptr, all, r.stream),
                    VESCOMM_OK);
                gpu_double::cudaMemcpyAsync(copy, all, 32, cuda::copy_device_to_device, r.stream);
            };
            run();
            EXPECT_EQ(calls_in(r, "cudaStreamSynchronize", run), 0);
            EXPECT_EQ(calls_in(r, "cudaStreamQuery", run), 0);
            EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
            EXPECT_EQ(r.read(copy, 8), (std::vector<float>{0, 1, 2, 3, 4, 0, 1, 2}));
        });
        EXPECT_EQ(take_violations(), "");
    }
}

TEST(DeviceCollectives, CanBeCapturedIntoAGraph) {
    for (const char *method : methods) {
        if (method != nullptr && std::string(method) != "padded" && std::string(method) != "rooted")
            continue;
        run_device_ranks(3, device_options(method), [](DeviceRank &r) {
            const VectorLayout layout({2, 3, 1});
            auto *data = r.upload(std::vector<float>(6, 1));
            CUgraph_st *graph = nullptr;
            CUgraphExec_st *exec = nullptr;
            ASSERT_EQ(cudaStreamBeginCapture(r.stream, 1), 0);
            EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_ERROR_INVALID_ARGUMENT);
            EXPECT_EQ(vescomm_gpu_reduce_scatter_v(r.gpu, layout, VESCOMM_F32, VESCOMM_SUM, data,
                                                   nullptr, r.stream),
                      VESCOMM_OK);
            EXPECT_EQ(vescomm_gpu_all_gather_v(r.gpu, layout, VESCOMM_F32, nullptr, data, r.stream),
                      VESCOMM_OK);
            EXPECT_EQ(
                vescomm_gpu_all_reduce(r.gpu, data, data, 6, VESCOMM_F32, VESCOMM_MAX, r.stream),
                VESCOMM_OK);
            EXPECT_EQ(vescomm_gpu_broadcast(r.gpu, data, 6, VESCOMM_F32, 1, r.stream), VESCOMM_OK);
            ASSERT_EQ(cudaStreamEndCapture(r.stream, &graph), 0);
            ASSERT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), 0);
            for (int i = 0; i < 2; ++i) ASSERT_EQ(cudaGraphLaunch(exec, r.stream), 0);
            EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
            EXPECT_EQ(r.read(data, 6), std::vector<float>(6, 9)) << "each launch sums three ranks";
            cudaGraphExecDestroy(exec);
            cudaGraphDestroy(graph);
        });
        EXPECT_EQ(take_violations(), "");
    }
}

// ---- memory ----

TEST(DeviceMemory, IsRegisteredUntilItIsFreed) {
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        void *memory = nullptr, *other = nullptr;
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 100, &memory), VESCOMM_OK) << vescomm_get_last_error();
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 5000, &other), VESCOMM_OK);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 4096, 0u);
        auto *data = static_cast<float *>(memory);
        r.write(data, std::vector<float>(25, 1));
        EXPECT_EQ(vescomm_gpu_all_reduce(r.gpu, data, data, 25, VESCOMM_F32, VESCOMM_SUM, r.stream),
                  VESCOMM_OK);
        EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
        EXPECT_EQ(r.read(data, 25), std::vector<float>(25, 3));
        EXPECT_EQ(vescomm_gpu_mfree(r.gpu, data + 1), VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(vescomm_gpu_mfree(r.gpu, memory), VESCOMM_OK);
        EXPECT_EQ(vescomm_gpu_mfree(r.gpu, memory), VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_EQ(vescomm_gpu_mfree(r.gpu, nullptr), VESCOMM_OK);
        // `other` is freed with the communicator.
    });
    EXPECT_EQ(take_violations(), "");
}

// The shard and the whole buffer may be in memory of vescomm, or one of them, on all ranks.
TEST(DeviceMemory, HoldsOneOfTwoArrays) {
    for (const char *method : methods)
        run_device_ranks(3, device_options(method), [&](DeviceRank &r) {
            for (const auto &counts : {std::vector<std::int64_t>{4, 4, 4}, {5, 0, 3}, {0, 2, 9}}) {
                const VectorLayout layout(counts);
                const std::size_t all = layout.elements(), own = layout.count(r.rank);
                void *memory = nullptr;
                ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 4096, &memory), VESCOMM_OK);
                auto *registered = static_cast<float *>(memory), *other = r.array<float>(64);
                const auto check = [&](float *whole, float *shard) {
                    r.write(shard, std::vector<float>(own + 1, static_cast<float>(r.rank)));
                    const auto status = vescomm_gpu_all_gather_v(r.gpu, layout, VESCOMM_F32, shard,
                                                                 whole, r.stream);
                    if (!suits(method, counts, false)) {
                        EXPECT_EQ(status, VESCOMM_ERROR_UNSUPPORTED);
                        return;
                    }
                    ASSERT_EQ(status, VESCOMM_OK) << vescomm_get_last_error();
                    if (suits(method, counts, true)) {
                        ASSERT_EQ(vescomm_gpu_reduce_scatter_v(r.gpu, layout, VESCOMM_F32,
                                                               VESCOMM_SUM, whole, shard, r.stream),
                                  VESCOMM_OK)
                            << vescomm_get_last_error();
                    }
                    ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK)
                        << vescomm_get_last_error();
                    for (int k = 0; k < r.ranks; ++k)
                        EXPECT_EQ(r.read(whole + layout.begin(k), layout.count(k)),
                                  std::vector<float>(layout.count(k), static_cast<float>(k)));
                    const float sum = static_cast<float>(r.ranks * r.rank);
                    EXPECT_EQ(
                        r.read(shard, own),
                        std::vector<float>(
                            own, suits(method, counts, true) ? sum : static_cast<float>(r.rank)));
                };
                check(registered, other);
                check(other, registered);
                check(registered, registered + all);
                EXPECT_EQ(vescomm_gpu_mfree(r.gpu, memory), VESCOMM_OK);
            }
        });
    EXPECT_EQ(take_violations(), "");
}

// ---- the explanation ----

TEST(DeviceExplain, ShowsMethodsAndPredictions) {
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        const char *text = nullptr;
        const VectorLayout layout({4, 4});
        ASSERT_EQ(vescomm_gpu_explain(r.gpu, layout, VESCOMM_F32, 0, &text), VESCOMM_OK);
        EXPECT_NE(std::string(text).find("method equal, because"), std::string::npos) << text;
        const VectorLayout wrong({4, 4, 4});
        EXPECT_EQ(vescomm_gpu_explain(r.gpu, wrong, VESCOMM_F32, 0, &text),
                  VESCOMM_ERROR_INVALID_ARGUMENT);
    });
}

}  // namespace
}  // namespace vescomm::internal
