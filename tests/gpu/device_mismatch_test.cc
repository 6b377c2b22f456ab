// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks that make different calls on a device communicator.
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <functional>
#include <random>
#include <thread>
#include <utility>

#include "gpu/device_ranks.h"
#include "gpu/session_ranks.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using gpu_double::take_violations;

// A version of NCCL with ncclGetPeerDevicePointer(), before any library is loaded.
const int version_is_set = setenv("GPU_DOUBLE_NCCL", "23203", 1);

// Arguments of any call.
struct Call {
    enum Kind { all_reduce, broadcast, all_gather_v, reduce_scatter_v, all_to_all_v } kind;
    std::vector<std::int64_t> counts;  // all_reduce, broadcast: one
    vescomm_type_t type = VESCOMM_F32;
    vescomm_op_t op = VESCOMM_SUM;
    int root = 0;

    // `r`: a DeviceRank or a SessionRank.
    template <typename Rank>
    vescomm_status_t start(Rank &r, void *data, void *shard) const {
        switch (kind) {
            case all_reduce:
                return vescomm_gpu_all_reduce(r.gpu, data, data, counts[0], type, op, r.stream);
            case broadcast:
                return vescomm_gpu_broadcast(r.gpu, data, counts[0], type, root, r.stream);
            case all_gather_v:
                return vescomm_gpu_all_gather_v(r.gpu, VectorLayout(counts), type, shard, data,
                                                r.stream);
            case reduce_scatter_v:
                return vescomm_gpu_reduce_scatter_v(r.gpu, VectorLayout(counts), type, op, data,
                                                    shard, r.stream);
            case all_to_all_v:
                return vescomm_gpu_all_to_all_v(r.gpu, data, counts.data(), nullptr, shard,
                                                counts.data(), nullptr, type, r.stream);
        }
        return VESCOMM_ERROR_INTERNAL;
    }
};

struct Arrays {
    explicit Arrays(gpu_double::Device &r)
        : data(r.array<double>(100)), shard(r.array<double>(100)) {}
    double *data, *shard;
};

// Makes some equal calls, then `usual` on all ranks but the last one, which makes `other`; then
// waits. Every rank must get a mismatch.
void expect_mismatch(int ranks, const Call &usual, const Call &other,
                     const std::vector<std::string> &sentences) {
    const auto begin = std::chrono::steady_clock::now();
    std::barrier equal(ranks);
    run_device_ranks(ranks, device_options(), [&](DeviceRank &r) {
        const Arrays arrays(r);
        for (int i = 0; i < 3; ++i)
            ASSERT_EQ(usual.start(r, arrays.data, arrays.shard), VESCOMM_OK)
                << vescomm_get_last_error();
        equal.arrive_and_wait();
        const Call &mine = r.rank == r.ranks - 1 ? other : usual;
        vescomm_status_t status = mine.start(r, arrays.data, arrays.shard);
        // The work of a rank may be complete before the other one has made its call.
        while (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
        EXPECT_EQ(status, VESCOMM_ERROR_MISMATCH) << vescomm_get_last_error();
        const std::string text = vescomm_get_last_error();
        EXPECT_NE(text.find("call 4 on the device communicator is "), std::string::npos) << text;
        for (const std::string &sentence : sentences)
            EXPECT_NE(text.find(sentence), std::string::npos) << text;
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    take_violations();
}

TEST(DeviceMismatch, IsFoundInAnyArgument) {
    const Call sum{Call::all_reduce, {10}};
    expect_mismatch(3, sum, {Call::all_reduce, {11}},
                    {"all_reduce of 10 f32 (sum) on rank", "all_reduce of 11 f32 (sum) on rank 2"});
    expect_mismatch(2, sum, {Call::all_reduce, {10}, VESCOMM_F32, VESCOMM_MAX},
                    {"all_reduce of 10 f32 (max) on rank 1"});
    expect_mismatch(2, sum, {Call::all_reduce, {10}, VESCOMM_I32},
                    {"all_reduce of 10 i32 (sum) on rank 1"});
    expect_mismatch(4, sum, {Call::broadcast, {10}}, {"broadcast of 10 f32 (root 0) on rank 3"});
    const Call broadcast{Call::broadcast, {10}};
    expect_mismatch(3, broadcast, {Call::broadcast, {10}, VESCOMM_F32, VESCOMM_SUM, 1},
                    {"(root 1) on rank 2"});
    // Equal bytes.
    expect_mismatch(2, broadcast, {Call::broadcast, {5}, VESCOMM_F64},
                    {"broadcast of 5 f64 (root 0) on rank 1"});
    const Call gather{Call::all_gather_v, {1, 2, 3}};
    expect_mismatch(3, gather, {Call::all_gather_v, {3, 2, 1}},
                    {"all_gather_v of 6 f32 (sizes of shards ", "on rank 2"});
    expect_mismatch(3, gather, {Call::reduce_scatter_v, {1, 2, 3}},
                    {"reduce_scatter_v of 6 f32 (sum, sizes of shards "});
    expect_mismatch(3, {Call::reduce_scatter_v, {1, 2, 3}},
                    {Call::reduce_scatter_v, {1, 2, 3}, VESCOMM_F32, VESCOMM_MIN},
                    {"reduce_scatter_v of 6 f32 (min, sizes of shards "});
}

TEST(DeviceMismatch, IsFoundInExchanges) {
    const Call exchange{Call::all_to_all_v, {2, 2, 2}};
    expect_mismatch(3, exchange, {Call::all_to_all_v, {1, 1, 1}, VESCOMM_F64},
                    {"all_to_all_v of f32 on rank", "all_to_all_v of f64 on rank 2"});
    expect_mismatch(3, exchange, {Call::all_gather_v, {2, 2, 2}},
                    {"all_gather_v of 6 f32 (sizes of shards ", "on rank 2"});
    expect_mismatch(2, {Call::all_reduce, {4}}, {Call::all_to_all_v, {0, 0}},
                    {"all_to_all_v of f32 on rank 1"});
}

TEST(DeviceMismatch, ACallWithoutElementsIsACall) {
    expect_mismatch(2, {Call::all_reduce, {10}}, {Call::all_reduce, {0}},
                    {"all_reduce of 0 f32 (sum) on rank 1"});
    expect_mismatch(2, {Call::all_gather_v, {0, 0}}, {Call::all_gather_v, {0, 1}},
                    {"all_gather_v of 1 f32 (sizes of shards "});
}

TEST(DeviceMismatch, IsFoundInGroupsOfBuffers) {
    std::barrier created(2);
    run_device_ranks(2, device_options(), [&](DeviceRank &r) {
        const VectorLayout layout({100, 200});
        vescomm_gpu_buffer_t *buffers[2] = {};
        for (auto &buffer : buffers)
            ASSERT_EQ(vescomm_gpu_buffer_create(r.gpu, layout, nullptr, &buffer), VESCOMM_OK)
                << vescomm_get_last_error();
        created.arrive_and_wait();
        vescomm_status_t status =
            r.rank == 0 ? vescomm_gpu_buffer_all_gather_v(buffers, 2, r.stream)
                        : vescomm_gpu_buffer_reduce_scatter_v(buffers, 2, VESCOMM_SUM, r.stream);
        if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
        EXPECT_EQ(status, VESCOMM_ERROR_MISMATCH) << vescomm_get_last_error();
        for (auto &buffer : buffers) vescomm_gpu_buffer_free(buffer);
    });
    take_violations();
}

void expect_mismatch_text(vescomm_status_t status, const std::vector<std::string> &sentences) {
    EXPECT_EQ(status, VESCOMM_ERROR_MISMATCH);
    const std::string text = vescomm_get_last_error();
    for (const std::string &sentence : sentences)
        EXPECT_NE(text.find(sentence), std::string::npos) << text;
}

// Two buffers of equal layouts.
struct Buffers {
    explicit Buffers(DeviceRank &r) {
        const VectorLayout layout({16, 16});
        vescomm_gpu_buffer_options_t options = vescomm_gpu_buffer_options_init();
        for (auto &buffer : both) {
            options.name = &buffer == both ? "first" : "second";
            EXPECT_EQ(vescomm_gpu_buffer_create(r.gpu, layout, &options, &buffer), VESCOMM_OK)
                << vescomm_get_last_error();
        }
    }
    ~Buffers() {
        for (auto &buffer : both) vescomm_gpu_buffer_free(buffer);
    }
    vescomm_gpu_buffer_t *both[2] = {};
};

// No argument differs, and the double sees no difference either: only results would be wrong.
TEST(DeviceMismatch, IsFoundInSwappedBuffers) {
    for (const char *method : {"peer", "copy_engine", "equal"}) {
        SCOPED_TRACE(method);
        std::barrier all(2);
        run_device_ranks(2, device_options(method), [&](DeviceRank &r) {
            Buffers buffers(r);
            all.arrive_and_wait();
            auto status =
                vescomm_gpu_buffer_all_gather_v(&buffers.both[r.rank == 1 ? 0 : 1], 1, r.stream);
            all.arrive_and_wait();
            if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
            expect_mismatch_text(
                status, {"call 3 on the device communicator is all_gather_v of 32 f32",
                         "in buffer 1 \"second\") on rank 0", "in buffer 0 \"first\") on rank 1",
                         "on the same buffers and allocations, which are numbered from 0"});
        });
        take_violations();
    }
}

TEST(DeviceMismatch, IsFoundInPlacesOfArrays) {
    std::barrier all(2);
    enum Case { offset, source, unregistered, broadcast, gather, shard, beside, output, cases };
    for (int k = 0; k < cases; ++k) {
        SCOPED_TRACE(k);
        run_device_ranks(2, device_options(), [&](DeviceRank &r) {
            void *memory = nullptr;
            ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 8192, &memory), VESCOMM_OK);
            auto *begin = static_cast<float *>(memory), *other = begin + 64;
            if (k == unregistered || k == beside) other = r.array<float>(16);
            auto *mine = r.rank == 1 ? other : begin;
            const auto call = [&] {
                if (k == broadcast)
                    return vescomm_gpu_broadcast(r.gpu, mine, 16, VESCOMM_F32, 0, r.stream);
                if (k == gather)
                    return vescomm_gpu_all_gather_v(r.gpu, VectorLayout({8, 8}), VESCOMM_F32,
                                                    nullptr, mine, r.stream);
                if (k == shard || k == beside)  // rank 0 in place
                    return vescomm_gpu_all_gather_v(r.gpu, VectorLayout({8, 8}), VESCOMM_F32,
                                                    r.rank == 0 ? nullptr : mine, begin, r.stream);
                if (k == output)
                    return vescomm_gpu_reduce_scatter_v(r.gpu, VectorLayout({8, 8}), VESCOMM_F32,
                                                        VESCOMM_SUM, begin + 128, mine, r.stream);
                return vescomm_gpu_all_reduce(r.gpu, mine, k == source ? begin + 128 : mine, 16,
                                              VESCOMM_F32, VESCOMM_SUM, r.stream);
            };
            all.arrive_and_wait();
            auto status = call();
            all.arrive_and_wait();
            if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
            expect_mismatch_text(status,
                                 {"byte 0 of allocation ", k == unregistered || k == beside
                                                               ? "memory of the program) on"
                                                               : "byte 256 of allocation "});
        });
    }
    take_violations();
}

TEST(DeviceMismatch, IsFoundInFreesOfSwappedMemory) {
    std::barrier all(2);
    for (const bool of_buffers : {true, false}) {
        run_device_ranks(2, device_options(), [&](DeviceRank &r) {
            Buffers buffers(r);
            void *memory[2] = {};
            for (auto &one : memory) ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 100, &one), VESCOMM_OK);
            const int first = r.rank == 1 ? 0 : 1;
            auto status = of_buffers ? vescomm_gpu_buffer_free(buffers.both[first])
                                     : vescomm_gpu_mfree(r.gpu, memory[first]);
            if (of_buffers && status == VESCOMM_OK) buffers.both[first] = nullptr;
            all.arrive_and_wait();
            if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
            expect_mismatch_text(status,
                                 {"call 5 on the device communicator is the free of ",
                                  of_buffers ? "buffer 1 \"second\" on rank 0" : "allocation "});
        });
        EXPECT_EQ(take_violations(), "");
    }
}

// Ranks of different nodes pass their calls to one another over the control plane. `hangs`: NCCL
// waits for the last rank, which makes no second call; otherwise the double reports the difference.
void expect_mismatch_between(const std::vector<int> &nodes, bool hangs) {
    const int ranks = static_cast<int>(nodes.size());
    std::barrier equal(ranks);
    run_session(
        ranks,
        [&](SessionRank &r) {
            ASSERT_EQ(r.create(), VESCOMM_OK) << vescomm_get_last_error();
            const Arrays arrays(r);
            Call call{Call::all_reduce, {10}};
            ASSERT_EQ(call.start(r, arrays.data, arrays.shard), VESCOMM_OK);
            ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
            equal.arrive_and_wait();
            if (hangs && r.rank == ranks - 1) {
                while (vescomm_gpu_comm_check(r.gpu) == VESCOMM_OK) std::this_thread::yield();
                return;
            }
            call.counts = {nodes[static_cast<std::size_t>(r.rank)] == 0 ? 10 : 20};
            vescomm_status_t status = call.start(r, arrays.data, arrays.shard);
            if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
            EXPECT_EQ(status, VESCOMM_ERROR_MISMATCH) << vescomm_get_last_error();
            const std::string text = vescomm_get_last_error();
            EXPECT_NE(text.find("call 2 on the device communicator is all_reduce of "),
                      std::string::npos)
                << text;
        },
        20, nodes);
    take_violations();
}

TEST(DeviceMismatch, IsFoundBetweenNodes) {
    expect_mismatch_between({0, 1}, false);
    expect_mismatch_between({0, 0, 0, 1}, false);
    expect_mismatch_between({0, 1, 1, 2}, false);
    expect_mismatch_between({1, 0, 1}, false);
}

TEST(DeviceMismatch, IsFoundBetweenNodesThatHang) {
    expect_mismatch_between({0, 1, 2}, true);
    expect_mismatch_between({0, 0, 1, 1}, true);
}

// Broadcasts of equal bytes, which neither NCCL nor the double distinguishes: they complete.
const Call equal_bytes[] = {{Call::broadcast, {10}}, {Call::broadcast, {10}, VESCOMM_I32}};

// One call, whose work may be complete before anybody waits. Each rank in turn is the one that
// differs.
TEST(DeviceMismatch, IsFoundInCompleteCallsOfANode) {
    constexpr int ranks = 4;
    for (int other = 0; other < ranks; ++other) {
        std::barrier all(ranks);
        run_device_ranks(ranks, device_options(), [&](DeviceRank &r) {
            const Arrays arrays(r);
            all.arrive_and_wait();
            const auto status =
                equal_bytes[r.rank == other ? 1 : 0].start(r, arrays.data, arrays.shard);
            all.arrive_and_wait();
            EXPECT_EQ(status == VESCOMM_OK ? vescomm_gpu_wait(r.gpu, r.stream) : status,
                      VESCOMM_ERROR_MISMATCH)
                << vescomm_get_last_error();
        });
        EXPECT_EQ(take_violations(), "");
    }
}

TEST(DeviceMismatch, IsFoundInCompleteCallsBetweenNodes) {
    std::barrier begin(2);
    run_session(2,
                [&](SessionRank &r) {
                    ASSERT_EQ(r.create(), VESCOMM_OK) << vescomm_get_last_error();
                    const Arrays arrays(r);
                    begin.arrive_and_wait();
                    vescomm_status_t status = VESCOMM_OK;
                    int calls = 0;
                    while (status == VESCOMM_OK && calls < 1'000'000) {
                        ++calls;
                        status = equal_bytes[r.rank].start(r, arrays.data, arrays.shard);
                        if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
                    }
                    EXPECT_EQ(status, VESCOMM_ERROR_MISMATCH) << vescomm_get_last_error();
                    EXPECT_NE(std::string(vescomm_get_last_error())
                                  .find("call 1 on the device communicator is broadcast of 10 "),
                              std::string::npos)
                        << vescomm_get_last_error();
                },
                20, {0, 1});
    EXPECT_EQ(take_violations(), "");
}

// Rank 0 waits for a sum, while the other rank creates, frees or splits: none of them ends.
TEST(DeviceMismatch, IsFoundInCallsThatMoveNoData) {
    struct Case {
        const char *name;
        std::function<vescomm_status_t(DeviceRank &, Buffers &)> call;
    };
    const Case cases[] = {
        {"vescomm_gpu_malloc()",
         [](DeviceRank &r, Buffers &) {
             void *memory = nullptr;
             return vescomm_gpu_malloc(r.gpu, 100, &memory);
         }},
        {"vescomm_gpu_buffer_create()",
         [](DeviceRank &r, Buffers &) {
             vescomm_gpu_buffer_t *made = nullptr;
             return vescomm_gpu_buffer_create(r.gpu, VectorLayout({16, 16}), nullptr, &made);
         }},
        {"the free of buffer 1 \"second\"",
         [](DeviceRank &r, Buffers &buffers) {
             // It waits for no other rank, and is compared in the next call at the latest.
             const auto status = vescomm_gpu_buffer_free(buffers.both[1]);
             if (status != VESCOMM_OK) return status;
             buffers.both[1] = nullptr;
             return vescomm_gpu_wait(r.gpu, r.stream);
         }},
        {"vescomm_gpu_comm_split()",
         [](DeviceRank &r, Buffers &) {
             vescomm_gpu_comm_t *made = nullptr;
             return vescomm_gpu_comm_split(r.gpu, nullptr, nullptr, &made);
         }},
        {"vescomm_gpu_comm_free()",
         [](DeviceRank &r, Buffers &) {
             return vescomm_gpu_comm_free(std::exchange(r.gpu, nullptr));
         }},
    };
    for (const Case &one : cases) {
        SCOPED_TRACE(one.name);
        run_device_ranks(2, device_options(), [&](DeviceRank &r) {
            const Arrays arrays(r);
            Buffers buffers(r);
            vescomm_status_t status = VESCOMM_OK;
            if (r.rank == 0) {
                status = Call{Call::all_reduce, {10}}.start(r, arrays.data, arrays.shard);
                if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
                expect_mismatch_text(status, {"call 3 on the device communicator is ", one.name,
                                              "all_reduce of 10 f32"});
                return;
            }
            status = one.call(r, buffers);
            if (r.gpu == nullptr && status == VESCOMM_OK) return;
            if (status != VESCOMM_OK) {
                EXPECT_EQ(status, VESCOMM_ERROR_MISMATCH);
            }
        });
    }
    take_violations();
}

TEST(DeviceMismatch, TheRankWithoutALaunchIsNamed) {
    std::barrier all(2);
    run_devices(hurried(node_of_ranks(2)), [&](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options()), VESCOMM_OK);
        const Arrays arrays(r);
        CUgraph_st *graph = nullptr;
        CUgraphExec_st *exec = nullptr;
        ASSERT_EQ(cudaStreamBeginCapture(r.stream, 1), 0);
        ASSERT_EQ((Call{Call::all_reduce, {10}}.start(r, arrays.data, arrays.shard)), VESCOMM_OK);
        ASSERT_EQ(cudaStreamEndCapture(r.stream, &graph), 0);
        ASSERT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), 0);
        all.arrive_and_wait();
        if (r.rank == 0) {
            EXPECT_EQ(cudaGraphLaunch(exec, r.stream), 0);
            EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_ERROR_TIMEOUT);
            const std::string text = vescomm_get_last_error();
            EXPECT_NE(text.find("in the same order; rank 1 of this "
                                "node does not wait for its device in vescomm"),
                      std::string::npos)
                << text;
        }
        all.arrive_and_wait();
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(graph);
    });
    take_violations();
}

TEST(DeviceMismatch, TheRankWithoutACallIsNamed) {
    run_devices(hurried(node_of_ranks(3)), [](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options()), VESCOMM_OK);
        const Arrays arrays(r);
        const Call sum{Call::all_reduce, {10}};
        ASSERT_EQ(sum.start(r, arrays.data, arrays.shard), VESCOMM_OK);
        ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
        if (r.rank == 1) {
            while (vescomm_gpu_comm_check(r.gpu) == VESCOMM_OK) std::this_thread::yield();
            return;
        }
        vescomm_status_t status = sum.start(r, arrays.data, arrays.shard);
        if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
        EXPECT_EQ(status, VESCOMM_ERROR_TIMEOUT);
        const std::string text = vescomm_get_last_error();
        EXPECT_NE(text.find("rank 1 of this node has not made call 2 on the device communicator"),
                  std::string::npos)
            << text;
    });
    take_violations();
}

// Ranks that make the same calls never get a mismatch, however far one is ahead, and whatever calls
// failed before they had an effect.
TEST(DeviceMismatch, EqualCallsAreNone) {
    std::barrier ahead(3);
    run_device_ranks(3, device_options(), [&](DeviceRank &r) {
        const Arrays arrays(r);
        std::mt19937 random(1);
        const auto draw = [&](int from, int to) {
            return std::uniform_int_distribution(from, to)(random);
        };
        const auto make_calls = [&](int count) {
            for (int i = 0; i < count; ++i) {
                Call call{static_cast<Call::Kind>(draw(0, 3)), {draw(0, 20), draw(0, 20), 1}};
                call.root = draw(0, 2);
                call.op = draw(0, 1) == 0 ? VESCOMM_SUM : VESCOMM_MAX;
                ASSERT_EQ(call.start(r, arrays.data, arrays.shard), VESCOMM_OK)
                    << vescomm_get_last_error();
            }
        };
        make_calls(200);
        ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK) << vescomm_get_last_error();
        // Rank 0 is further ahead than calls are kept.
        if (r.rank != 0) ahead.arrive_and_wait();
        if (r.rank == 1) {
            EXPECT_EQ(vescomm_gpu_all_reduce(r.gpu, arrays.data, arrays.data, -1, VESCOMM_F32,
                                             VESCOMM_SUM, r.stream),
                      VESCOMM_ERROR_INVALID_ARGUMENT);
        }
        make_calls(200);
        if (r.rank == 0) ahead.arrive_and_wait();
        EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK) << vescomm_get_last_error();
    });
    EXPECT_EQ(take_violations(), "");
}

}  // namespace
}  // namespace vescomm::internal
