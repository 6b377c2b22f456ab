// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// gpu.hpp: moves, destructors, failures, and exceptions, on the test double.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <memory>
#include <optional>
#include <thread>

#include "gpu/hpp_ranks.h"

namespace vescomm {
namespace {

using namespace testing_support;
using gpu_double::calls_of;
using gpu_double::take_violations;

constexpr auto invalid = VESCOMM_ERROR_INVALID_ARGUMENT;

Layout four_each(int ranks) {
    return Layout::from_counts(Counts(static_cast<std::size_t>(ranks), 4));
}

TEST(GpuHppMoves, AMovedOwnerRefusesCallsAndTheOtherWorks) {
    run_hpp_ranks(2, [](HppRank &r) {
        gpu::Communicator device(r.comm);
        gpu::Memory memory(device, 64);
        gpu::Buffer buffer(device, four_each(2));
        void *const address = memory.data();

        gpu::Communicator taken = std::move(device);
        gpu::Memory taken_memory = std::move(memory);
        gpu::Buffer taken_buffer = std::move(buffer);
        EXPECT_EQ(device.get(), nullptr);
        EXPECT_EQ(buffer.get(), nullptr);
        EXPECT_EQ(memory.data(), nullptr);
        EXPECT_EQ(taken_memory.data(), address);
        expect_error([&] { device.wait(r.stream); }, invalid, "comm is NULL");
        expect_error([&] { device.info(); }, invalid, "comm is NULL");
        expect_error([&] { gpu::Memory(device, 64); }, invalid, "comm is NULL");
        expect_error([&] { gpu::Buffer(device, four_each(2)); }, invalid, "comm is NULL");
        expect_error(
            [&] {
                gpu::broadcast(device, {r.array<float>(1), 1});
            },
            invalid, "comm is NULL");
        expect_error([&] { buffer.data(); }, invalid, "buffer is NULL");
        expect_error([&] { buffer.all_gather_v(r.stream); }, invalid,
                     "an element of buffers is NULL");
        device.free();
        buffer.free();
        memory.free();

        r.put(taken_buffer.shard(), Floats(4, static_cast<float>(r.rank)));
        taken_buffer.all_gather_v(r.stream);
        taken.wait(r.stream);
        EXPECT_EQ(r.get(taken_buffer.data()), (Floats{0, 0, 0, 0, 1, 1, 1, 1}));
        buffer = std::move(taken_buffer);
        EXPECT_EQ(taken_buffer.get(), nullptr);
        EXPECT_EQ(buffer.data().elements, 8);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuHppMoves, AnAssignedTemporaryFreesTheOldObject) {
    std::barrier<> all(2);
    run_hpp_ranks(2, [&](HppRank &r) {
        gpu::Communicator device(r.comm);
        gpu::Memory memory(device, 64);
        gpu::Buffer buffer(device, four_each(2));
        all.arrive_and_wait();
        const int before = calls_of("ncclMemFree");
        all.arrive_and_wait();
        memory = gpu::Memory(device, 128);
        buffer = gpu::Buffer(device, Layout::from_counts(Counts{8, 8}));
        all.arrive_and_wait();
        EXPECT_EQ(calls_of("ncclMemFree") - before, 4) << "both objects of both ranks";
        EXPECT_EQ(buffer.data().elements, 16);
        all.arrive_and_wait();
    });
    EXPECT_EQ(take_violations(), "");
}

// Work on the memory runs when the destructor begins. The double finds memory that is freed before.
TEST(GpuHppEnds, DestructorsWaitForTheWorkOfTheDevice) {
    run_hpp_ranks(3, [](HppRank &r) {
        gpu::Communicator device(r.comm);
        std::atomic<bool> open{false}, complete{false};
        std::thread opener;
        {
            gpu::Buffer buffer(device, four_each(3));
            gpu::Memory memory(device, 48);
            buffer.all_gather_v(r.stream);
            gpu_double::launch(r.stream, "kernel", {{buffer.data().data, 48, true}}, [&] {
                open.wait(false);
                complete = true;
            });
            gpu::all_reduce(device, gpu::Array(static_cast<float *>(memory.data()), 12),
                            VESCOMM_SUM, r.stream);
            opener = std::thread([&] {
                open = true;
                open.notify_all();
            });
        }
        EXPECT_TRUE(complete);
        opener.join();
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuHppEnds, MemoryOfWorkThatHangsIsKept) {
    std::atomic<bool> open{false};
    run_hpp_ranks(
        1,
        [&](HppRank &r) {
            const int frees = calls_of("ncclMemFree");
            {
                gpu::Communicator device(r.comm);
                gpu::Memory memory(device, 16);
                gpu::Buffer buffer(device, four_each(1));
                gpu_double::launch(r.stream, "kernel",
                                   {{buffer.data().data, 16, true}, {memory.data(), 16, true}},
                                   [&] { open.wait(false); });
                expect_error([&] { buffer.free(); }, VESCOMM_ERROR_TIMEOUT, "to free memory");
                EXPECT_NE(buffer.get(), nullptr) << "it still exists";
            }
            EXPECT_EQ(calls_of("ncclMemFree"), frees);
            open = true;
            open.notify_all();
            EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
        },
        1);
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuHppEnds, ACommunicatorIsFreedAlsoIfThatFails) {
    std::atomic<bool> open{false};
    run_hpp_ranks(
        1,
        [&](HppRank &r) {
            gpu::Communicator device(r.comm);
            gpu_double::launch(r.stream, "kernel", {}, [&] { open.wait(false); });
            expect_error([&] { device.free(); }, VESCOMM_ERROR_TIMEOUT, "to free the communicator");
            EXPECT_EQ(device.get(), nullptr);
            open = true;
            open.notify_all();
            EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
        },
        1);
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuHppEnds, OwnersMayOutliveTheirCommunicator) {
    run_hpp_ranks(2, [](HppRank &r) {
        auto device = std::make_unique<gpu::Communicator>(r.comm);
        gpu::Memory memory(*device, 64);
        gpu::Buffer buffer(*device, four_each(2));
        buffer.all_gather_v(r.stream);
        device.reset();
        expect_error([&] { buffer.data(); }, invalid, "was freed");
        expect_error([&] { buffer.all_gather_v(r.stream); }, invalid, "was freed");
        memory.free();  // its communicator has freed it
        buffer.free();
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuHppEnds, TheHostMayEndFirst) {
    run_hpp_ranks(2, [](HppRank &r) {
        gpu::Communicator device(r.comm);
        gpu::Memory memory(device, 64);
        gpu::Buffer buffer(device, four_each(2));
        buffer.all_gather_v(r.stream);
        r.comm.finalize();
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuHppFailures, ARankThatDoesNotCallIsATimeout) {
    run_hpp_ranks(
        2,
        [](HppRank &r) {
            gpu::Communicator device(r.comm);
            gpu::Buffer buffer(device, four_each(2));
            if (r.rank == 0) {
                buffer.all_gather_v(r.stream);
                expect_error([&] { device.wait(r.stream); }, VESCOMM_ERROR_TIMEOUT,
                             "rank 0 waited for the work of a stream until its deadline");
            } else {
                while (vescomm_gpu_comm_check(device.get()) == VESCOMM_OK)
                    std::this_thread::yield();
            }
            expect_error([&] { buffer.all_gather_v(r.stream); }, VESCOMM_ERROR_TIMEOUT,
                         "rank 0 waited");
            expect_error([&] { device.check(); }, VESCOMM_ERROR_TIMEOUT, "rank 0 waited");
        },
        1);
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuHppFailures, SurvivorsShrinkTheirDevices) {
    std::barrier<> all(3);
    run_hpp_ranks(3, [&](HppRank &r) {
        auto options = vescomm_gpu_comm_options_init();
        options.shrinkable = 1;
        gpu::Communicator device(r.comm, options);
        gpu::Buffer buffer(device, four_each(3));
        all.arrive_and_wait();
        if (r.rank == 1) {
            gpu_double::kill_device(1);
            vescomm_comm_abort(r.comm.get(), "rank 1 has ended");
        } else {
            expect_error(
                [&] {
                    buffer.all_gather_v(r.stream);
                    device.wait(r.stream);
                },
                VESCOMM_ERROR_ABORTED, "rank 1 has ended");
            const std::int32_t failed[] = {1};
            Communicator host = r.comm.shrink(failed);
            gpu::Communicator survivors = device.shrink(host);
            EXPECT_EQ(survivors.info().derived, 1);
            gpu::Buffer again(survivors, four_each(2));
            r.put(again.shard(), Floats(4, static_cast<float>(r.rank)));
            again.all_gather_v(r.stream);
            survivors.wait(r.stream);
            EXPECT_EQ(r.get(again.data()), (Floats{0, 0, 0, 0, 2, 2, 2, 2}));
        }
        all.arrive_and_wait();
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuHppFailures, AFailureOfNcclNamesTheRank) {
    std::barrier<> all(3);
    run_hpp_ranks(3, [&](HppRank &r) {
        gpu::Communicator device(r.comm);
        gpu::Buffer buffer(device, four_each(3));
        all.arrive_and_wait();
        if (r.rank == 2) gpu_double::break_device(2, vescomm::internal::nccl::remote_error);
        all.arrive_and_wait();
        expect_error(
            [&] {
                buffer.all_gather_v(r.stream);
                device.wait(r.stream);
            },
            VESCOMM_ERROR_PEER_FAILED, "failed on rank 2: remote process");
    });
    EXPECT_EQ(take_violations(), "");
}

// Rank 0 waits for a call that rank 1 does not make.
void expect_aborted(HppRank &r, gpu::Communicator &device) {
    expect_error(
        [&] {
            gpu::all_reduce(device, gpu::Array(r.array<float>(1), 1), VESCOMM_SUM, r.stream);
            device.wait(r.stream);
        },
        VESCOMM_ERROR_ABORTED, "an exception left the scope of device memory");
}

TEST(GpuHppFailures, AnExceptionThatLeavesTheScopeAbortsOtherRanks) {
    const auto is_expected = [](int rank, const std::exception &error) {
        return rank == 1 && error.what() == std::string("a defect of the program");
    };
    run_hpp_ranks(
        2,
        [](HppRank &r) {
            gpu::Communicator device(r.comm);
            if (r.rank == 1) throw std::runtime_error("a defect of the program");
            expect_aborted(r, device);
        },
        20, is_expected);
    EXPECT_EQ(take_violations(), "");
}

TEST(GpuHppFailures, AnExceptionThatLeavesTheScopeOfMemoryAbortsOtherRanks) {
    for (const bool registered : {false, true}) {
        SCOPED_TRACE(registered ? "buffer" : "memory");
        run_hpp_ranks(
            2,
            [&](HppRank &r) {
                gpu::Communicator device(r.comm);
                try {
                    gpu::Memory memory;
                    gpu::Buffer buffer;
                    if (registered) buffer = gpu::Buffer(device, four_each(2));
                    else memory = gpu::Memory(device, 64);
                    if (r.rank == 1) throw std::runtime_error("caught outside");
                    expect_aborted(r, device);
                } catch (const std::runtime_error &error) {
                    EXPECT_EQ(error.what(), std::string("caught outside"));
                }
                expect_error([&] { device.check(); }, VESCOMM_ERROR_ABORTED, "left the scope");
            },
            20);
        EXPECT_EQ(take_violations(), "");
    }
}

TEST(GpuHppFailures, AnExceptionWithinTheScopeAbortsNothing) {
    run_hpp_ranks(2, [](HppRank &r) {
        gpu::Communicator device(r.comm);
        gpu::Buffer buffer(device, four_each(2));
        try {
            throw std::runtime_error("caught");
        } catch (const std::runtime_error &) {
            gpu::Buffer another(device, four_each(2));
        }
        buffer.all_gather_v(r.stream);
        device.wait(r.stream);
        device.check();
    });
    EXPECT_EQ(take_violations(), "");
}

}  // namespace
}  // namespace vescomm
