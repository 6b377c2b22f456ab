// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Device buffers: their memory, their ends, and wrong calls, on the test double.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>
#include <utility>

#include "api/gpu_handles.h"
#include "gpu/device_buffer.h"
#include "gpu/test_buffer.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using gpu_double::calls_of;
using gpu_double::fail_call;
using gpu_double::take_violations;

constexpr auto invalid = VESCOMM_ERROR_INVALID_ARGUMENT;

vescomm_gpu_buffer_options_t strict_options(vescomm_gpu_placement_t placement) {
    auto options = buffer_options(VESCOMM_F32, placement);
    options.any_cuts = 0;
    return options;
}

vescomm_gpu_buffer_options_t options_in(void *memory, std::uint64_t offset) {
    auto options = buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED);
    options.memory = memory;
    options.offset_bytes = offset;
    return options;
}

void expect_error(vescomm_status_t status, vescomm_status_t expected, const std::string &says) {
    EXPECT_EQ(status, expected) << vescomm_get_last_error();
    EXPECT_NE(std::string(vescomm_get_last_error()).find(says), std::string::npos)
        << vescomm_get_last_error();
}

// All ranks try the same, and get the same error.
void expect_refused(DeviceRank &r, const vescomm_layout_t *layout,
                    const vescomm_gpu_buffer_options_t &options, vescomm_status_t expected,
                    const std::string &says) {
    TestBuffer buffer(r, layout, options);
    expect_error(buffer.status, expected, says);
    EXPECT_EQ(buffer.handle, nullptr);
}

// ---- creation ----

TEST(DeviceBufferCreation, RefusesShardsThatAreNotAligned) {
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        const VectorLayout layout({4, 3, 5}), empty_behind({4, 3, 0});
        expect_refused(r, layout, strict_options(VESCOMM_GPU_PACKED), invalid,
                       "the shard of rank 2 of buffer \"buffer\" begins at byte 28, which is no "
                       "multiple of 16");
        std::uint64_t bytes = 0;
        const auto options = strict_options(VESCOMM_GPU_PACKED);
        expect_error(vescomm_gpu_buffer_get_bytes(layout, &options, &bytes), invalid,
                     "vescomm_gpu_buffer_get_bytes: the shard of rank 2");
        TestBuffer strided(r, layout, strict_options(VESCOMM_GPU_STRIDED));
        EXPECT_EQ(strided.status, VESCOMM_OK) << vescomm_get_last_error();
        TestBuffer any(r, layout, buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
        EXPECT_EQ(any.status, VESCOMM_OK) << vescomm_get_last_error();
        TestBuffer empty(r, empty_behind, strict_options(VESCOMM_GPU_PACKED));
        EXPECT_EQ(empty.status, VESCOMM_OK) << "an empty shard may begin anywhere";
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceBufferCreation, RefusesWrongArguments) {
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        const VectorLayout layout({4, 4}), three({4, 4, 4});
        const auto good = strict_options(VESCOMM_GPU_PACKED);
        auto options = good;
        options.type = 99;
        expect_refused(r, layout, options, invalid, "type 99 is no type of elements");
        options = good;
        options.placement = 2;
        expect_refused(r, layout, options, invalid, "placement is 2; use VESCOMM_GPU_PACKED or");
        options = good;
        options.any_cuts = 2;
        expect_refused(r, layout, options, invalid, "any_cuts is 2; use 0 or 1");
        expect_refused(r, three, good, invalid,
                       "the layout has 3 shards, and the communicator 2 ranks");
        expect_refused(r, nullptr, good, invalid, "layout is NULL");
        vescomm_gpu_buffer_t *buffer = nullptr;
        EXPECT_EQ(vescomm_gpu_buffer_create(nullptr, layout, &good, &buffer), invalid);
        EXPECT_EQ(vescomm_gpu_buffer_create(r.gpu, layout, nullptr, &buffer), VESCOMM_OK)
            << "the communicator is not broken";
        EXPECT_EQ(vescomm_gpu_buffer_free(buffer), VESCOMM_OK);
        EXPECT_EQ(vescomm_gpu_buffer_free(nullptr), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceBufferCreation, RefusesRanksThatDiffer) {
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        const VectorLayout ours({4, r.rank == 2 ? 8 : 4, 4}), same({4, 4, 4});
        expect_refused(r, ours, strict_options(VESCOMM_GPU_PACKED), VESCOMM_ERROR_MISMATCH,
                       "creation of device buffer \"buffer\": the layouts of rank 0 and rank 2 "
                       "differ: ");
        expect_refused(r, same,
                       strict_options(r.rank == 1 ? VESCOMM_GPU_STRIDED : VESCOMM_GPU_PACKED),
                       VESCOMM_ERROR_MISMATCH, "its placement");
        TestBuffer buffer(r, same, strict_options(VESCOMM_GPU_PACKED));
        EXPECT_EQ(buffer.status, VESCOMM_OK) << vescomm_get_last_error();
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceBufferCreation, FailsOnAllRanksWithoutMemoryOnOne) {
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        const VectorLayout layout({4, 4, 4});
        r.parent.value->barrier();
        if (r.rank == 0) fail_call("ncclMemAlloc", 1, nccl::unhandled_cuda_error);
        r.parent.value->barrier();
        expect_refused(r, layout, strict_options(VESCOMM_GPU_PACKED), VESCOMM_ERROR_OUT_OF_MEMORY,
                       "48 bytes of device memory cannot be allocated");
        TestBuffer buffer(r, layout, strict_options(VESCOMM_GPU_PACKED));
        EXPECT_EQ(buffer.status, VESCOMM_OK) << vescomm_get_last_error();
    });
    EXPECT_EQ(take_violations(), "");
}

// ---- memory of the caller ----

TEST(DeviceBufferMemory, HoldsSeveralBuffers) {
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        const VectorLayout layout({4, 0, 5});
        void *memory = nullptr;
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 4096, &memory), VESCOMM_OK);
        r.parent.value->barrier();
        const int registrations = calls_of("ncclCommWindowRegister");
        r.parent.value->barrier();
        {
            TestBuffer a(r, layout, options_in(memory, 0));
            TestBuffer b(r, layout, options_in(memory, 256));
            ASSERT_EQ(a.status, VESCOMM_OK) << vescomm_get_last_error();
            ASSERT_EQ(b.status, VESCOMM_OK) << vescomm_get_last_error();
            EXPECT_EQ(a.whole<char>().data(), memory);
            EXPECT_EQ(b.whole<char>().data(), static_cast<char *>(memory) + 256);
            vescomm_gpu_buffer_t *const handles[] = {b.handle, a.handle};
            a.fill<float>(1);
            b.fill<float>(2);
            EXPECT_EQ(vescomm_gpu_buffer_reduce_scatter_v(handles, 2, VESCOMM_SUM, r.stream),
                      VESCOMM_OK)
                << vescomm_get_last_error();
            EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
            EXPECT_EQ(a.read<float>(r.rank), std::vector<float>(layout.count(r.rank), 3));
            EXPECT_EQ(b.read<float>(r.rank), std::vector<float>(layout.count(r.rank), 6));
            expect_error(vescomm_gpu_mfree(r.gpu, memory), invalid,
                         "is used by 2 device buffers; free them first");
        }
        EXPECT_EQ(calls_of("ncclCommWindowRegister"), registrations) << "it is registered once";
        EXPECT_EQ(vescomm_gpu_mfree(r.gpu, memory), VESCOMM_OK) << vescomm_get_last_error();
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceBufferMemory, IsChecked) {
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        const VectorLayout layout({4, 4});
        void *first = nullptr, *second = nullptr;
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 4096, &first), VESCOMM_OK);
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 4096, &second), VESCOMM_OK);
        expect_refused(r, layout, options_in(static_cast<char *>(first) + 256, 0), invalid,
                       "no memory of vescomm_gpu_malloc() on this communicator begins at the");
        expect_refused(r, layout, options_in(first, 100), invalid,
                       "offset_bytes is 100, and must be a multiple of 256");
        expect_refused(r, VectorLayout({1000, 4}), options_in(first, 256), invalid,
                       "8000 bytes at 256 do not fit into its memory of 4096 bytes");
        expect_refused(r, layout, options_in(first, std::uint64_t{1} << 40), invalid, "do not fit");
        // NCCL's symmetric windows need equal offsets.
        expect_refused(r, layout, options_in(first, r.rank == 0 ? 0 : 256), VESCOMM_ERROR_MISMATCH,
                       "its offset_bytes");
        expect_refused(r, layout, options_in(r.rank == 0 ? first : second, 0),
                       VESCOMM_ERROR_MISMATCH, "its memory");
        expect_refused(r, layout, options_in(r.rank == 0 ? first : nullptr, 0),
                       VESCOMM_ERROR_MISMATCH, "its memory");
        {
            TestBuffer own(r, layout, options_in(nullptr, 0));
            ASSERT_EQ(own.status, VESCOMM_OK) << vescomm_get_last_error();
            expect_error(vescomm_gpu_mfree(r.gpu, own.whole<char>().data()), invalid,
                         "is used by 1 device buffer; free it first");
        }
        EXPECT_EQ(vescomm_gpu_mfree(r.gpu, first), VESCOMM_OK) << "no buffer uses it";
        EXPECT_EQ(vescomm_gpu_mfree(r.gpu, second), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
}

// NCCL then succeeds, and registers no window.
TEST(DeviceBufferMemory, IsRegisteredWithoutSymmetricMemory) {
    setenv("GPU_DOUBLE_SYMMETRIC", "0", 1);
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        const VectorLayout layout({4, 0, 5});
        const auto make = [&] {
            TestBuffer buffer(r, layout, buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
            ASSERT_EQ(buffer.status, VESCOMM_OK) << vescomm_get_last_error();
            const char *text = nullptr;
            EXPECT_EQ(vescomm_gpu_buffer_explain(buffer.handle, 0, &text), VESCOMM_OK);
            EXPECT_NE(std::string(text).find("registered with the communicator, because NCCL has "
                                             "no symmetric memory between these devices\n"),
                      std::string::npos)
                << text;
            buffer.fill<float>(static_cast<float>(r.rank));
            EXPECT_EQ(vescomm_gpu_buffer_all_gather_v(&buffer.handle, 1, r.stream), VESCOMM_OK);
            EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
            for (int k = 0; k < 3; ++k)
                EXPECT_EQ(buffer.read<float>(k),
                          std::vector<float>(layout.count(k), static_cast<float>(k)));
        };
        EXPECT_EQ(calls_in(r, "ncclCommRegister", make), 3);
        EXPECT_EQ(calls_in(r, "ncclCommDeregister", make), 3);
    });
    unsetenv("GPU_DOUBLE_SYMMETRIC");
    EXPECT_EQ(take_violations(), "");
}

// ---- calls ----

TEST(DeviceBufferCalls, RefuseBuffersThatCannotBeOneGroup) {
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        const VectorLayout layout({4, 4});
        void *memory = nullptr;
        vescomm_gpu_comm_t *other = nullptr;
        const auto options = device_options();
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 4096, &memory), VESCOMM_OK);
        ASSERT_EQ(vescomm_gpu_comm_create(&r.parent, &options, &other), VESCOMM_OK);
        {
            TestBuffer a(r, layout, options_in(memory, 0));
            TestBuffer b(r, VectorLayout({64, 64}), options_in(memory, 0));
            std::swap(r.gpu, other);
            TestBuffer c(r, layout, strict_options(VESCOMM_GPU_PACKED));
            std::swap(r.gpu, other);
            const auto gather = [&](std::vector<vescomm_gpu_buffer_t *> buffers) {
                return vescomm_gpu_buffer_all_gather_v(buffers.data(), buffers.size(), r.stream);
            };
            expect_error(gather({a.handle, b.handle}), invalid,
                         "buffers \"buffer\" and \"buffer\" overlap");
            expect_error(gather({a.handle, a.handle}), invalid, "is given twice");
            expect_error(gather({a.handle, c.handle}), invalid, "different communicators");
            expect_error(gather({a.handle, nullptr}), invalid, "an element of buffers is NULL");
            expect_error(vescomm_gpu_buffer_all_gather_v(nullptr, 1, r.stream), invalid,
                         "buffers is NULL");
            EXPECT_EQ(vescomm_gpu_buffer_all_gather_v(nullptr, 0, r.stream), VESCOMM_OK);
            EXPECT_EQ(vescomm_gpu_buffer_reduce_scatter_v(nullptr, 0, VESCOMM_SUM, r.stream),
                      VESCOMM_OK);
            expect_error(
                vescomm_gpu_buffer_reduce_scatter_v(&a.handle, 1, VESCOMM_BITWISE_OR, r.stream),
                VESCOMM_ERROR_UNSUPPORTED, "bitwise or");
            EXPECT_EQ(gather({a.handle}), VESCOMM_OK) << vescomm_get_last_error();
            EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
        }
        EXPECT_EQ(vescomm_gpu_comm_free(other), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
}

// A rule of NCCL that the double checks: vescomm refuses different offsets itself, so this test
// calls NCCL.
TEST(DeviceBufferCalls, DifferentOffsetsInWindowsAreFound) {
    setenv("GPU_DOUBLE_SECONDS", "1", 1);
    run_devices(hurried(node_of_ranks(2)), [](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options()), VESCOMM_OK);
        void *memory = nullptr;
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 4096, &memory), VESCOMM_OK);
        auto *whole = static_cast<float *>(memory) + 4 * r.rank;
        DeviceCommunicator &comm = *r.gpu->value;
        comm.libraries().nccl.all_gather(whole + 4 * r.rank, whole, 4, nccl::f32, comm.nccl(),
                                         r.stream);
        EXPECT_NE(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
    });
    unsetenv("GPU_DOUBLE_SECONDS");
    EXPECT_THAT_VIOLATION("at offset 0 of a window and at offset 16");
}

// ---- ends ----

TEST(DeviceBufferEnds, AFreeWaitsForTheWorkOfTheDevice) {
    run_device_ranks(3, device_options("padded"), [](DeviceRank &r) {
        TestBuffer buffer(r, VectorLayout({4, 0, 5}),
                          buffer_options(VESCOMM_F32, VESCOMM_GPU_PACKED));
        ASSERT_EQ(buffer.status, VESCOMM_OK);
        EXPECT_EQ(vescomm_gpu_buffer_all_gather_v(&buffer.handle, 1, r.stream), VESCOMM_OK);
        EXPECT_EQ(buffer.free(), VESCOMM_OK) << vescomm_get_last_error();
    });
    EXPECT_EQ(take_violations(), "") << "deregistered, then freed, and no work uses it";
}

TEST(DeviceBufferEnds, TheCommunicatorMayBeFreedFirst) {
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        void *memory = nullptr;
        ASSERT_EQ(vescomm_gpu_malloc(r.gpu, 4096, &memory), VESCOMM_OK);
        TestBuffer own(r, VectorLayout({4, 4, 4}), strict_options(VESCOMM_GPU_PACKED));
        TestBuffer in_memory(r, VectorLayout({4, 4, 4}), options_in(memory, 0));
        EXPECT_EQ(vescomm_gpu_comm_free(r.gpu), VESCOMM_OK);
        r.gpu = nullptr;
        for (TestBuffer *buffer : {&own, &in_memory}) {
            vescomm_view_t view = {};
            const char *text = nullptr;
            const std::string freed = "the communicator of buffer \"buffer\" was freed";
            expect_error(vescomm_gpu_buffer_get_data(buffer->handle, &view), invalid, freed);
            expect_error(vescomm_gpu_buffer_get_tensor(buffer->handle, 0, &view), invalid, freed);
            expect_error(vescomm_gpu_buffer_get_shard(buffer->handle, 0, &view), invalid, freed);
            expect_error(vescomm_gpu_buffer_all_gather_v(&buffer->handle, 1, r.stream), invalid,
                         freed);
            expect_error(vescomm_gpu_buffer_explain(buffer->handle, 0, &text), invalid, freed);
            EXPECT_EQ(buffer->free(), VESCOMM_OK) << vescomm_get_last_error();
        }
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceBufferEnds, ABrokenCommunicatorFreesThem) {
    std::barrier<> all(2);
    run_device_ranks(2, device_options(), [&](DeviceRank &r) {
        TestBuffer buffer(r, VectorLayout({4, 4}), strict_options(VESCOMM_GPU_PACKED));
        all.arrive_and_wait();
        if (r.rank == 0) r.parent.value->abort("rank 0 gives up");
        while (vescomm_gpu_comm_check(r.gpu) == VESCOMM_OK) std::this_thread::yield();
        expect_error(vescomm_gpu_buffer_all_gather_v(&buffer.handle, 1, r.stream),
                     VESCOMM_ERROR_ABORTED, "rank 0 gives up");
        EXPECT_EQ(buffer.free(), VESCOMM_OK) << vescomm_get_last_error();
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceBufferEnds, ACaptureRefusesAFree) {
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        TestBuffer buffer(r, VectorLayout({4, 4}), strict_options(VESCOMM_GPU_PACKED));
        CUgraph_st *graph = nullptr;
        ASSERT_EQ(cudaStreamBeginCapture(r.stream, 1), 0);
        EXPECT_EQ(buffer.free(), invalid) << vescomm_get_last_error();
        EXPECT_NE(cudaStreamEndCapture(r.stream, &graph), 0);
        buffer.fill<float>(1);
        EXPECT_EQ(vescomm_gpu_buffer_all_gather_v(&buffer.handle, 1, r.stream), VESCOMM_OK)
            << "it still exists";
        EXPECT_EQ(buffer.free(), VESCOMM_OK) << vescomm_get_last_error();
    });
    EXPECT_THAT_VIOLATION("a wait for the device during the capture of a graph");
}

// ---- mutations ----

// Frees a buffer with work on it, with changed libraries.
void free_mutated(const GpuLibraries &libraries) {
    run_devices(hurried(node_of_ranks(2)), [&](DeviceRank &r) {
        std::shared_ptr<DeviceCommunicator> comm =
            DeviceCommunicator::create(r.parent.value, {}, libraries);
        const auto buffer =
            DeviceBuffer::create(comm, Layout::from_counts(std::vector<std::int64_t>{4, 4}), {});
        DeviceBuffer *const one = buffer.get();
        device::all_gather_v({&one, 1}, r.stream);
        buffer->free();
        comm->wait(r.stream);
    });
}

TEST(DeviceBufferMutations, NoMutationIsNoViolation) {
    free_mutated(gpu_libraries());
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceBufferMutations, AMissingDeregistrationIsFound) {
    GpuLibraries libraries = gpu_libraries();
    libraries.nccl.comm_window_deregister = [](nccl::Comm, nccl::Window) { return nccl::success; };
    free_mutated(libraries);
    EXPECT_THAT_VIOLATION("device memory is freed while it is a registered window of rank");
}

TEST(DeviceBufferMutations, AMissingWaitIsFound) {
    GpuLibraries libraries = gpu_libraries();
    libraries.cuda.device_synchronize = [] { return cuda::success; };
    free_mutated(libraries);
    EXPECT_THAT_VIOLATION("device memory is freed while ncclAllGather.* may use it");
}

}  // namespace
}  // namespace vescomm::internal
