// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// all_to_all_v on device memory, on the test double.
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "gpu/device_ranks.h"
#include "gpu/session_ranks.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using gpu_double::take_violations;

using Counts = std::vector<std::int64_t>;

// Elements that a rank sends another one, of a table of all ranks.
using Table = std::function<std::int64_t(int from, int to)>;

// Element i of the block of rank `from` for rank `to`.
std::int32_t value(int from, int to, std::int64_t i) {
    return 10000 * from + 100 * to + static_cast<std::int32_t>(i);
}

// The blocks of one side.
struct Side {
    Counts counts, offsets;
    std::vector<std::int32_t> values;  // -1 between the blocks
};

// `block(rank)`: the elements; gaps of `gap` elements before each block, and in the order of ranks
// or the reverse.
template <typename Block>
Side side_of(int ranks, std::int64_t gap, bool reversed, const Block &block) {
    Side side;
    side.counts.resize(static_cast<std::size_t>(ranks));
    side.offsets.resize(static_cast<std::size_t>(ranks));
    for (int k = 0; k < ranks; ++k) {
        const auto rank = static_cast<std::size_t>(reversed ? ranks - 1 - k : k);
        const std::vector<std::int32_t> elements = block(static_cast<int>(rank));
        side.values.insert(side.values.end(), static_cast<std::size_t>(gap), -1);
        side.counts[rank] = static_cast<std::int64_t>(elements.size());
        side.offsets[rank] = static_cast<std::int64_t>(side.values.size());
        side.values.insert(side.values.end(), elements.begin(), elements.end());
    }
    return side;
}

void check_exchange(DeviceRank &r, const Table &table, std::int64_t gap, bool reversed) {
    const auto block = [&](int from, int to) {
        std::vector<std::int32_t> elements;
        for (std::int64_t i = 0; i < table(from, to); ++i) elements.push_back(value(from, to, i));
        return elements;
    };
    const Side source = side_of(r.ranks, gap, reversed, [&](int to) { return block(r.rank, to); });
    const Side expected =
        side_of(r.ranks, 2 * gap, !reversed, [&](int from) { return block(from, r.rank); });
    auto *from = r.upload(source.values);
    auto *to = r.upload(std::vector<std::int32_t>(expected.values.size(), -1));
    const bool packed = gap == 0 && !reversed;
    ASSERT_EQ(vescomm_gpu_all_to_all_v(
                  r.gpu, from, source.counts.data(), packed ? nullptr : source.offsets.data(), to,
                  expected.counts.data(), expected.offsets.data(), VESCOMM_I32, r.stream),
              VESCOMM_OK)
        << vescomm_get_last_error();
    ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK) << vescomm_get_last_error();
    EXPECT_EQ(r.read(to, expected.values.size()), expected.values);
    EXPECT_EQ(r.read(from, source.values.size()), source.values);
}

TEST(DeviceExchange, EveryBlockArrives) {
    const Table tables[] = {
        [](int, int) { return 5; },
        [](int from, int to) { return 3 * from + to; },
        [](int from, int to) { return (from + to) % 2 * 17; },  // no blocks of a rank for itself
        [](int from, int to) { return from == to ? 4 : 0; },
        [](int from, int) { return from == 0 ? 33 : 0; },  // one rank sends
        [](int, int to) { return to == 0 ? 33 : 0; },  // one rank receives
        [](int, int) { return 0; },
    };
    for (const int ranks : {1, 2, 3, 5, 7}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks");
        run_device_ranks(ranks, device_options(), [&](DeviceRank &r) {
            for (const Table &table : tables)
                for (const bool reversed : {false, true}) {
                    check_exchange(r, table, 0, reversed);
                    check_exchange(r, table, 3, reversed);
                }
        });
        EXPECT_EQ(take_violations(), "");
    }
}

TEST(DeviceExchange, MovesEveryType) {
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        for (vescomm_type_t type = VESCOMM_F32; type <= VESCOMM_C128; ++type) {
            const std::size_t bytes = vescomm_type_get_bytes(type);
            std::vector<unsigned char> mine(3 * bytes);
            for (std::size_t i = 0; i < mine.size(); ++i)
                mine[i] = static_cast<unsigned char>(100 * r.rank + static_cast<int>(i));
            const Counts counts = r.rank == 0 ? Counts{1, 2} : Counts{2, 1};
            auto *source = r.upload(mine);
            auto *output = r.array<unsigned char>(3 * bytes);
            ASSERT_EQ(vescomm_gpu_all_to_all_v(r.gpu, source, counts.data(), nullptr, output,
                                               counts.data(), nullptr, type, r.stream),
                      VESCOMM_OK)
                << vescomm_get_last_error();
            ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
            const auto found = r.read(output, 3 * bytes);
            // Rank 0 keeps element 0 and gets the first two of rank 1, which keeps its last one.
            for (std::size_t i = 0; i < found.size(); ++i) {
                const bool own = r.rank == 0 ? i < bytes : i >= 2 * bytes;
                const std::size_t from = own ? i : r.rank == 0 ? i - bytes : i + bytes;
                const int rank = own ? r.rank : 1 - r.rank;
                EXPECT_EQ(found[i], static_cast<unsigned char>(100 * rank + static_cast<int>(from)))
                    << "type " << type << ", byte " << i;
            }
        }
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceExchange, KeepsTheBlockOfThisRankInItsPlace) {
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        std::vector<std::int32_t> values(12, -1);
        for (int k = 0; k < 3; ++k) values[static_cast<std::size_t>(k)] = value(r.rank, k, 0);
        auto *data = r.upload(values);
        const Counts ones{1, 1, 1}, sources{0, 1, 2};
        Counts outputs{6, 7, 8};
        outputs[static_cast<std::size_t>(r.rank)] = r.rank;
        ASSERT_EQ(vescomm_gpu_all_to_all_v(r.gpu, data, ones.data(), sources.data(), data,
                                           ones.data(), outputs.data(), VESCOMM_I32, r.stream),
                  VESCOMM_OK)
            << vescomm_get_last_error();
        ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
        for (int k = 0; k < 3; ++k)
            if (k != r.rank) values[static_cast<std::size_t>(6 + k)] = value(k, r.rank, 0);
        EXPECT_EQ(r.read(data, 12), values);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceExchange, ReplaysInAGraph) {
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        const Counts counts{2, 2, 2};
        auto *source = r.array<std::int32_t>(6);
        auto *output = r.array<std::int32_t>(6);
        const auto exchange = [&] {
            ASSERT_EQ(vescomm_gpu_all_to_all_v(r.gpu, source, counts.data(), nullptr, output,
                                               counts.data(), nullptr, VESCOMM_I32, r.stream),
                      VESCOMM_OK)
                << vescomm_get_last_error();
        };
        exchange();  // NCCL connects
        CUgraph_st *graph = nullptr;
        CUgraphExec_st *exec = nullptr;
        ASSERT_EQ(cudaStreamBeginCapture(r.stream, 2), 0);
        exchange();
        ASSERT_EQ(cudaStreamEndCapture(r.stream, &graph), 0);
        ASSERT_EQ(cudaGraphInstantiateWithFlags(&exec, graph, 0), 0);
        for (int round = 0; round < 2; ++round) {
            std::vector<std::int32_t> mine, expected;
            for (int k = 0; k < 3; ++k)
                for (int i = 0; i < 2; ++i) {
                    mine.push_back(value(r.rank, k, i + round));
                    expected.push_back(value(k, r.rank, i + round));
                }
            r.write(source, mine);
            ASSERT_EQ(cudaGraphLaunch(exec, r.stream), 0);
            ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
            EXPECT_EQ(r.read(output, 6), expected);
        }
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(graph);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceExchange, RefusesWrongArguments) {
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        const auto invalid = VESCOMM_ERROR_INVALID_ARGUMENT;
        auto *source = r.array<float>(20), *output = r.array<float>(20);
        const Counts twos{2, 2}, none{0, 0};
        const auto call = [&](const void *from, const std::int64_t *counts,
                              const std::int64_t *offsets, void *to, const std::int64_t *to_counts,
                              const std::int64_t *to_offsets, vescomm_type_t type = VESCOMM_F32) {
            return vescomm_gpu_all_to_all_v(r.gpu, from, counts, offsets, to, to_counts, to_offsets,
                                            type, r.stream);
        };
        const std::int64_t *two = twos.data();
        expect_error(call(source, nullptr, nullptr, output, two, nullptr), invalid,
                     "vescomm_gpu_all_to_all_v: source_counts is NULL");
        expect_error(call(source, two, nullptr, output, nullptr, nullptr), invalid,
                     "output_counts is NULL");
        expect_error(call(nullptr, two, nullptr, output, two, nullptr), invalid, "source is NULL");
        expect_error(call(source, two, nullptr, nullptr, two, nullptr), invalid, "output is NULL");
        const Counts negative{2, -1};
        expect_error(call(source, negative.data(), nullptr, output, two, nullptr), invalid,
                     "source_counts[1] is -1; it must be 0 to 2^40");
        expect_error(call(source, two, negative.data(), output, two, nullptr), invalid,
                     "source_offsets[1] is -1; it must be 0 to 2^40");
        const Counts huge{2, (std::int64_t{1} << 40) + 1};
        expect_error(call(source, two, nullptr, output, huge.data(), nullptr), invalid,
                     "output_counts[1] is 1099511627777");
        const Counts other{r.rank == 0 ? 3 : 2, r.rank == 0 ? 2 : 3};
        expect_error(call(source, two, nullptr, output, other.data(), nullptr), invalid,
                     "this rank sends itself 2 elements and expects 3");
        const Counts close{4, 5};
        expect_error(call(source, two, nullptr, output, two, close.data()), invalid,
                     "the blocks of output for rank 0 and rank 1 overlap");
        expect_error(call(source, two, nullptr, source + 3, two, nullptr), invalid,
                     "the block of source for rank 1 and the block of output for rank 0 overlap");
        expect_error(call(source, two, nullptr, source, two, nullptr), invalid, "overlap");
        expect_error(call(reinterpret_cast<char *>(source) + 2, two, nullptr, output, two, nullptr),
                     invalid, "source");
        expect_error(call(source, two, nullptr, output, two, nullptr, 99), invalid, "type");
        expect_error(vescomm_gpu_all_to_all_v(nullptr, source, two, nullptr, output, two, nullptr,
                                              VESCOMM_F32, r.stream),
                     invalid, "comm is NULL");
        // Nothing happened on any rank, and no offset of an empty block is read.
        const Counts odd{-5, INT64_MAX};
        EXPECT_EQ(call(nullptr, none.data(), odd.data(), nullptr, none.data(), odd.data()),
                  VESCOMM_OK)
            << vescomm_get_last_error();
        EXPECT_EQ(call(source, two, nullptr, output, two, nullptr), VESCOMM_OK)
            << vescomm_get_last_error();
        EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
}

// Ranks of a node compare their counts: NCCL hangs, or gives wrong results.
TEST(DeviceExchange, FindsOtherCountsOnTheNode) {
    for (const int ranks : {2, 3, 5})
        for (const std::int64_t expects : {0, 2, 4}) {
            SCOPED_TRACE(ranks);
            std::barrier<> equal(ranks);
            run_devices(node_of_ranks(ranks), [&](DeviceRank &r) {
                ASSERT_EQ(r.create(device_options()), VESCOMM_OK) << vescomm_get_last_error();
                const auto elements = static_cast<std::size_t>(5 * r.ranks);
                auto *source = r.array<float>(elements), *output = r.array<float>(elements);
                const int last = r.ranks - 1;
                Counts sent(static_cast<std::size_t>(r.ranks), 1);
                Counts expected = sent;
                const auto exchange = [&] {
                    const auto status =
                        vescomm_gpu_all_to_all_v(r.gpu, source, sent.data(), nullptr, output,
                                                 expected.data(), nullptr, VESCOMM_F32, r.stream);
                    return status == VESCOMM_OK ? vescomm_gpu_wait(r.gpu, r.stream) : status;
                };
                // More calls than ranks remember.
                for (int i = 0; i < 70; ++i) ASSERT_EQ(exchange(), VESCOMM_OK);
                equal.arrive_and_wait();
                if (r.rank == 0) sent[static_cast<std::size_t>(last)] = 3;
                if (r.rank == last) expected[0] = expects;
                vescomm_status_t status = exchange();
                // Those that have no part in it, and what NCCL completes: in a later call.
                const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
                while (status == VESCOMM_OK && std::chrono::steady_clock::now() < limit) {
                    status = vescomm_gpu_comm_check(r.gpu);
                    std::this_thread::yield();
                }
                expect_error(
                    status, VESCOMM_ERROR_MISMATCH,
                    "call 71 on the device communicator, all_to_all_v of f32: rank 0 sends "
                    "3 elements to rank " +
                        std::to_string(last) + ", which expects " + std::to_string(expects) +
                        "; the counts of two ranks for one another must be the same");
            });
            take_violations();  // the double finds it too
        }
}

// Between nodes they are compared in long waits, or after NCCL has failed.
TEST(DeviceExchange, FindsOtherCountsBetweenNodes) {
    for (const std::vector<int> &nodes :
         {std::vector<int>{0, 1}, std::vector<int>{0, 0, 1, 1}, std::vector<int>{0, 1, 2, 0, 1}})
        for (const std::int64_t expects : {0, 2, 4}) {
            const int ranks = static_cast<int>(nodes.size()), last = ranks - 1;
            SCOPED_TRACE(std::to_string(ranks) + " ranks, expects " + std::to_string(expects));
            std::barrier<> equal(ranks);
            const auto body = [&](SessionRank &r) {
                ASSERT_EQ(r.create(), VESCOMM_OK) << vescomm_get_last_error();
                const auto elements = static_cast<std::size_t>(5 * ranks);
                auto *source = r.array<float>(elements), *output = r.array<float>(elements);
                Counts sent(static_cast<std::size_t>(ranks), 1);
                Counts expected = sent;
                const auto exchange = [&] {
                    const auto status =
                        vescomm_gpu_all_to_all_v(r.gpu, source, sent.data(), nullptr, output,
                                                 expected.data(), nullptr, VESCOMM_F32, r.stream);
                    return status == VESCOMM_OK ? vescomm_gpu_wait(r.gpu, r.stream) : status;
                };
                // More exchanges than ranks remember.
                for (int i = 0; i < 10; ++i) ASSERT_EQ(exchange(), VESCOMM_OK);
                equal.arrive_and_wait();
                if (r.rank == 0) sent[static_cast<std::size_t>(last)] = 3;
                if (r.rank == last) expected[0] = expects;
                vescomm_status_t status = exchange();
                const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
                while (status == VESCOMM_OK && std::chrono::steady_clock::now() < limit) {
                    status = vescomm_gpu_comm_check(r.gpu);
                    std::this_thread::yield();
                }
                expect_error(status, VESCOMM_ERROR_MISMATCH,
                             "call 11 on the device communicator, all_to_all_v of f32: rank 0 "
                             "sends 3 elements to rank " +
                                 std::to_string(last) + ", which expects " +
                                 std::to_string(expects) +
                                 "; the counts of two ranks for one another must be the same");
            };
            run_session(ranks, body, 8, nodes);
            take_violations();  // the double finds it too
        }
}

// Mutation: a count that another rank does not expect, on another node.
TEST(DeviceExchange, TheDoubleFindsWrongCounts) {
    TestSetup nodes = node_of_ranks(2);
    nodes.node_of = {0, 1};
    run_devices(nodes, [](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options()), VESCOMM_OK) << vescomm_get_last_error();
        auto *source = r.array<float>(8), *output = r.array<float>(8);
        // Rank 0 sends 3 elements, and rank 1 expects 2.
        const Counts sent = r.rank == 0 ? Counts{1, 3} : Counts{1, 1};
        const Counts expected = r.rank == 0 ? Counts{1, 1} : Counts{2, 1};
        vescomm_status_t status =
            vescomm_gpu_all_to_all_v(r.gpu, source, sent.data(), nullptr, output, expected.data(),
                                     nullptr, VESCOMM_F32, r.stream);
        if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
        if (r.rank == 1) {
            EXPECT_NE(status, VESCOMM_OK);
        }
        vescomm_gpu_comm_free(r.gpu);  // returns the failure of NCCL
        r.gpu = nullptr;
    });
    EXPECT_NE(take_violations().find("rank 0 sends "), std::string::npos);
}

}  // namespace
}  // namespace vescomm::internal
