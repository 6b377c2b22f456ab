// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// gpu.hpp: results of collectives on uneven shards, and wrong arguments, on the test double.
#include <gtest/gtest.h>

#include <algorithm>

#include "gpu/hpp_ranks.h"

namespace vescomm {
namespace {

using namespace testing_support;
using gpu_double::take_violations;

constexpr auto invalid = VESCOMM_ERROR_INVALID_ARGUMENT;

vescomm_gpu_buffer_options_t placed(vescomm_gpu_placement_t placement) {
    auto options = vescomm_gpu_buffer_options_init();
    options.placement = placement;
    return options;
}

void fill_terms(HppRank &r, const gpu::Buffer &buffer, const Counts &counts) {
    for (int k = 0; k < r.ranks; ++k)
        r.put(buffer.shard(k), terms(r.rank, k, counts[static_cast<std::size_t>(k)]));
}

void expect_gathered(HppRank &r, const gpu::Buffer &buffer, const Counts &counts) {
    for (int k = 0; k < r.ranks; ++k)
        EXPECT_EQ(r.get(buffer.shard(k)), terms(k, k, counts[static_cast<std::size_t>(k)]));
}

TEST(GpuHpp, BuffersGatherAndReduceUnevenShards) {
    for (const int ranks : {1, 2, 3})
        for (const auto placement : {VESCOMM_GPU_PACKED, VESCOMM_GPU_STRIDED}) {
            SCOPED_TRACE(testing::Message() << ranks << " ranks, placement " << placement);
            run_hpp_ranks(ranks, [&](HppRank &r) {
                const Counts counts = uneven(r.ranks);
                const auto mine = counts[static_cast<std::size_t>(r.rank)];
                const Layout layout = Layout::from_counts(counts);
                gpu::Communicator device(r.comm);
                EXPECT_EQ(device.info().device, r.rank);
                EXPECT_EQ(device.info().nccl_version, gpu::check_support());
                EXPECT_EQ(device.rank(), r.rank);
                gpu::Buffer buffer(device, layout, placed(placement));
                fill_terms(r, buffer, counts);
                buffer.all_gather_v(r.stream);
                device.wait(r.stream);
                expect_gathered(r, buffer, counts);
                fill_terms(r, buffer, counts);
                buffer.reduce_scatter_v(VESCOMM_SUM, r.stream);
                device.wait(r.stream);
                EXPECT_EQ(r.get(buffer.shard()), sums(r.ranks, r.rank, mine));
                EXPECT_NE(buffer.explain(true).find("reduce_scatter_v"), std::string::npos)
                    << buffer.explain(true);
                buffer.free();
                EXPECT_EQ(buffer.get(), nullptr);
                device.free();
                EXPECT_EQ(device.get(), nullptr);
                r.comm.finalize();
            });
            EXPECT_EQ(take_violations(), "");
        }
}

TEST(GpuHpp, SeveralBuffersAreOneGroup) {
    run_hpp_ranks(3, [](HppRank &r) {
        const Counts first = {8, 0, 20}, second = {4, 4, 12};
        gpu::Communicator device(r.comm);
        gpu::Buffer a(device, Layout::from_counts(first));
        gpu::Buffer b(device, Layout::from_counts(second));
        fill_terms(r, a, first);
        fill_terms(r, b, second);
        gpu::all_gather_v({a.get(), b.get()}, r.stream);
        device.order_stream(nullptr);
        device.wait();
        expect_gathered(r, a, first);
        expect_gathered(r, b, second);
        vescomm_gpu_buffer_t *const both[] = {a.get(), b.get()};
        fill_terms(r, a, first);
        fill_terms(r, b, second);
        gpu::reduce_scatter_v(both, VESCOMM_SUM, r.stream);
        device.wait(r.stream);
        const auto k = static_cast<std::size_t>(r.rank);
        EXPECT_EQ(r.get(a.shard()), sums(3, r.rank, first[k]));
        EXPECT_EQ(r.get(b.shard()), sums(3, r.rank, second[k]));
        expect_error(
            [&] {
                gpu::all_gather_v({a.get(), a.get()}, r.stream);
            },
            invalid, "is given twice");
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuHpp, ArraysGatherAndReduceBesideAndInPlace) {
    for (const int ranks : {1, 2, 3}) {
        run_hpp_ranks(ranks, [](HppRank &r) {
            const Counts counts = uneven(r.ranks);
            const Layout layout = Layout::from_counts(counts);
            const std::int64_t elements = layout.info().elements;
            const auto mine = counts[static_cast<std::size_t>(r.rank)];
            gpu::Communicator device(r.comm);
            const gpu::Array whole(r.array<float>(32), elements), own(r.array<float>(32), mine);
            const auto expect_all = [&] {
                Floats expected;
                for (int k = 0; k < r.ranks; ++k)
                    std::ranges::copy(terms(k, k, counts[static_cast<std::size_t>(k)]),
                                      std::back_inserter(expected));
                EXPECT_EQ(r.get(whole), expected);
            };
            const auto put_all = [&] {
                Floats all;
                for (int k = 0; k < r.ranks; ++k)
                    std::ranges::copy(terms(r.rank, k, counts[static_cast<std::size_t>(k)]),
                                      std::back_inserter(all));
                r.put(whole, all);
            };
            r.put(own, terms(r.rank, r.rank, mine));
            gpu::all_gather_v(device, own, whole, layout, r.stream);
            device.wait(r.stream);
            expect_all();
            put_all();
            gpu::all_gather_v(device, whole, layout, r.stream);
            device.wait(r.stream);
            expect_all();

            put_all();
            gpu::reduce_scatter_v(device, whole, own, layout, VESCOMM_SUM, r.stream);
            device.wait(r.stream);
            EXPECT_EQ(r.get(own), sums(r.ranks, r.rank, mine));
            gpu::reduce_scatter_v(device, whole, layout, VESCOMM_SUM, r.stream);
            device.wait(r.stream);
            const std::int64_t begin = layout.shard(r.rank).first;
            EXPECT_EQ(r.get(gpu::Array(whole.as<float>() + begin, mine)),
                      sums(r.ranks, r.rank, mine));
            EXPECT_NE(device.explain(layout, VESCOMM_F32).find("all_gather_v"), std::string::npos);
        });
        EXPECT_EQ(take_violations(), "");
    }
}

TEST(GpuHpp, ReduceAndBroadcastHaveTheirResults) {
    run_hpp_ranks(3, [](HppRank &r) {
        gpu::Communicator device(r.comm);
        const gpu::Array a(r.upload(std::vector<std::int64_t>{r.rank + 1, 10, -r.rank}), 3);
        const gpu::Array b(r.array<std::int64_t>(3), 3);
        gpu::all_reduce(device, a, b, VESCOMM_MAX, r.stream);
        gpu::all_reduce(device, a, VESCOMM_SUM, r.stream);
        device.wait(r.stream);
        device.check();
        EXPECT_EQ(r.get<std::int64_t>(b), (std::vector<std::int64_t>{3, 10, 0}));
        EXPECT_EQ(r.get<std::int64_t>(a), (std::vector<std::int64_t>{6, 30, -3}));
        r.put(b, std::vector<std::int64_t>{r.rank, r.rank, 7});
        gpu::broadcast(device, b, 2, r.stream);
        device.wait(r.stream);
        EXPECT_EQ(r.get<std::int64_t>(b), (std::vector<std::int64_t>{2, 2, 7}));
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuHpp, BlocksGoToEveryRank) {
    run_hpp_ranks(3, [](HppRank &r) {
        gpu::Communicator device(r.comm);
        EXPECT_EQ(device.ranks(), 3);
        // Rank r sends k + 1 elements to rank k.
        std::vector<std::int32_t> mine, expected;
        for (int to = 0; to < 3; ++to)
            for (int i = 0; i <= to; ++i) mine.push_back(100 * r.rank + 10 * to + i);
        for (int from = 0; from < 3; ++from)
            for (int i = 0; i <= r.rank; ++i) expected.push_back(100 * from + 10 * r.rank + i);
        const Counts sent{1, 2, 3}, received(3, r.rank + 1);
        const gpu::Array source(r.array<std::int32_t>(6), 6), output(r.array<std::int32_t>(9), 9);
        r.put(source, mine);
        gpu::all_to_all_v(device, source, sent, output, received, r.stream);
        device.wait(r.stream);
        std::vector<std::int32_t> found = r.get<std::int32_t>(output);
        found.resize(expected.size());
        EXPECT_EQ(found, expected);
        const gpu::Array small(output.data, 2, VESCOMM_I32);
        expect_refused([&] { gpu::all_to_all_v(device, small, sent, output, received, r.stream); },
                       "source has 2 elements, and 6 are needed");
        expect_refused([&] { gpu::all_to_all_v(device, source, Counts{6}, output, received); },
                       "there are 1 counts for 3 ranks");
        expect_refused(
            [&] {
                gpu::all_to_all_v(device, {source.data, 6, VESCOMM_F32}, sent, output, received);
            },
            "source has elements of type");
        expect_error(
            [&] {
                gpu::all_to_all_v(device, source, Counts{6, -1, 0}, output, received);
            },
            VESCOMM_ERROR_INVALID_ARGUMENT, "source_counts[1] is -1");
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuHpp, PartsHaveTheRanksOfTheirCommunicator) {
    run_hpp_ranks(3, [](HppRank &r) {
        gpu::Communicator device(r.comm);
        Communicator host = r.comm.split(r.rank == 1 ? -1 : 0, -r.rank);
        gpu::Communicator part = device.split(host);
        EXPECT_EQ(part.get() == nullptr, r.rank == 1);
        if (part.get() != nullptr) {
            EXPECT_EQ(part.info().derived, 1);
            EXPECT_EQ(part.rank(), r.rank == 2 ? 0 : 1);
            gpu::Buffer buffer(part, Layout::from_counts(uneven(2)));
            const Floats own = terms(part.rank(), part.rank(), buffer.shard().elements);
            r.put(buffer.shard(), own);
            buffer.all_gather_v(r.stream);
            part.wait(r.stream);
            Floats all = terms(0, 0, 8);
            for (const float one : terms(1, 1, 20)) all.push_back(one);
            EXPECT_EQ(r.get(buffer.data()), all);
        }
        part.free();
        const gpu::Array one(r.upload(Floats{1}), 1);
        gpu::all_reduce(device, one, VESCOMM_SUM, r.stream);
        device.wait(r.stream);
        EXPECT_EQ(r.get(one), Floats{3}) << "the parent works";
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuHpp, TensorsAndBytesHaveTheTypeOfTheBuffer) {
    run_hpp_ranks(2, [](HppRank &r) {
        const std::vector<Tensor> tensors = {{"w", {2, 4}, 0}, {"b", {3}, 8}};
        const Layout layout(tensors, 16, Counts{0, 8, 16});
        gpu::Communicator device(r.comm);
        auto options = vescomm_gpu_buffer_options_init();
        options.type = VESCOMM_BF16;
        EXPECT_EQ(gpu::Buffer::bytes(layout, options), 32u);
        const gpu::Buffer buffer(device, layout, options);
        const gpu::Array b = buffer.tensor(layout.find("b"));
        EXPECT_EQ(b.type, VESCOMM_BF16);
        EXPECT_EQ(b.elements, 3);
        EXPECT_EQ(b.as<std::uint16_t>(), buffer.data().as<std::uint16_t>() + 8);
        EXPECT_EQ(b.as<std::byte>(), buffer.data().as<std::byte>() + 16);
        expect_refused([&] { b.as<float>(); }, "elements of 2 bytes is seen as one of 4");
        expect_error([&] { buffer.tensor(2); }, invalid, "index is 2");
        expect_error([&] { buffer.shard(2); }, invalid, "rank is 2; ranks are 0 to 1");
    });
}

TEST(GpuHpp, MemoryHoldsSeveralBuffers) {
    run_hpp_ranks(2, [](HppRank &r) {
        const Layout layout = Layout::from_counts(uneven(2));
        gpu::Communicator device(r.comm);
        gpu::Memory memory(device, 512 + gpu::Buffer::bytes(layout));
        auto options = vescomm_gpu_buffer_options_init();
        options.memory = memory.data();
        gpu::Buffer first(device, layout, options);
        options.offset_bytes = 512;
        gpu::Buffer second(device, layout, options);
        EXPECT_EQ(second.data().as<char>() - first.data().as<char>(), 512);
        expect_error([&] { memory.free(); }, invalid, "used by 2 device buffers");
        EXPECT_NE(memory.data(), nullptr) << "it still exists";
        first.free();
        second.free();
        memory.free();
        EXPECT_EQ(memory.data(), nullptr);
        memory.free();  // no effect
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuHpp, ShortArraysAreRefusedBeforeTheCall) {
    run_hpp_ranks(2, [](HppRank &r) {
        const Layout layout = Layout::from_counts(Counts{4, 4});
        gpu::Communicator device(r.comm);
        float *const data = r.array<float>(16);
        const gpu::Array whole(data, 8), own(data + 8, 4), none(static_cast<float *>(nullptr), 4);
        const gpu::Array halves(data + 8, 4, VESCOMM_F16);
        const int before = gpu_double::calls_of("ncclAllGather");
        expect_refused([&] { gpu::all_gather_v(device, own, own, layout, r.stream); },
                       "output has 4 elements, and 8 are needed");
        expect_refused([&] { gpu::all_gather_v(device, own, layout, r.stream); },
                       "data has 4 elements, and 8 are needed");
        expect_refused(
            [&] {
                gpu::all_gather_v(device, {data, 3}, whole, layout, r.stream);
            },
            "source has 3 elements, and 4 are needed");
        expect_refused([&] { gpu::all_gather_v(device, halves, whole, layout, r.stream); },
                       "source has elements of type 3, and type 1 is needed");
        // NULL would mean "in place" to the C function.
        expect_refused([&] { gpu::all_gather_v(device, none, whole, layout, r.stream); },
                       "the address of source is NULL");
        expect_refused(
            [&] { gpu::reduce_scatter_v(device, whole, none, layout, VESCOMM_SUM, r.stream); },
            "the address of output is NULL");
        expect_refused(
            [&] { gpu::reduce_scatter_v(device, own, own, layout, VESCOMM_SUM, r.stream); },
            "source has 4 elements, and 8 are needed");
        expect_refused([&] { gpu::all_reduce(device, whole, own, VESCOMM_SUM, r.stream); },
                       "output has 4 elements, and 8 are needed");
        expect_error(
            [&] {
                gpu::all_reduce(device, {data, -1}, VESCOMM_SUM, r.stream);
            },
            invalid, "count is -1");
        expect_error([&] { gpu::broadcast(device, whole, 2, r.stream); }, invalid,
                     "root is 2; ranks are 0 to 1");
        EXPECT_EQ(gpu_double::calls_of("ncclAllGather"), before);
        gpu::broadcast(device, whole, 1, r.stream);  // the communicator works
        device.wait(r.stream);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuHpp, RanksThatDifferAreNamed) {
    run_hpp_ranks(3, [](HppRank &r) {
        gpu::Communicator device(r.comm);
        const Layout layout = Layout::from_counts(r.rank == 2 ? Counts{4, 4, 8} : Counts{4, 8, 4});
        expect_error([&] { gpu::Buffer(device, layout); }, VESCOMM_ERROR_MISMATCH, "rank 2");
        auto options = placed(r.rank == 1 ? VESCOMM_GPU_STRIDED : VESCOMM_GPU_PACKED);
        expect_error(
            [&] {
                gpu::Buffer(device, Layout::from_counts(Counts{4, 4, 4}), options);
            },
            VESCOMM_ERROR_MISMATCH, "its placement is packed on rank 0 and strided on rank 1");
        auto comm_options = vescomm_gpu_comm_options_init();
        comm_options.workspace_bytes = r.rank == 1 ? 4096 : 8192;
        expect_error([&] { gpu::Communicator(r.comm, comm_options); }, VESCOMM_ERROR_MISMATCH,
                     "workspace_bytes is 8192 on rank 0 and 4096 on rank 1");
        gpu::Buffer works(device, Layout::from_counts(Counts{4, 4, 4}));
    });
    EXPECT_EQ(take_violations(), "");
}

}  // namespace
}  // namespace vescomm
