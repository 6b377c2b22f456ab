// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Wrong arguments, failures of NCCL, CUDA and ranks; and mutations of vescomm's calls, which the
// test double finds.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "gpu/device_collectives.h"
#include "gpu/device_ranks.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using gpu_double::break_device;
using gpu_double::fail_call;
using gpu_double::take_violations;

TEST(DeviceFailures, WrongArgumentsHaveNoEffect) {
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        constexpr auto invalid = VESCOMM_ERROR_INVALID_ARGUMENT;
        constexpr auto unsupported = VESCOMM_ERROR_UNSUPPORTED;
        const VectorLayout layout({1, 2}), three({1, 2, 3});
        auto *data = r.array<float>(8);
        auto *odd = reinterpret_cast<float *>(reinterpret_cast<char *>(data) + 2);
        auto *g = r.gpu;
        auto *s = r.stream;
        expect_error(vescomm_gpu_all_gather_v(nullptr, layout, VESCOMM_F32, nullptr, data, s),
                     invalid, "comm is NULL");
        expect_error(vescomm_gpu_all_gather_v(g, nullptr, VESCOMM_F32, nullptr, data, s), invalid,
                     "layout is NULL");
        expect_error(vescomm_gpu_all_gather_v(g, three, VESCOMM_F32, nullptr, data, s), invalid,
                     "the layout has 3 shards, and the communicator 2 ranks");
        expect_error(vescomm_gpu_all_gather_v(g, layout, 99, nullptr, data, s), invalid, "type 99");
        expect_error(vescomm_gpu_all_gather_v(g, layout, VESCOMM_F32, nullptr, nullptr, s), invalid,
                     "output is NULL");
        expect_error(vescomm_gpu_all_gather_v(g, layout, VESCOMM_F32, nullptr, odd, s), invalid,
                     "output is not aligned");
        expect_error(vescomm_gpu_all_gather_v(g, layout, VESCOMM_F32, data + 1 - r.rank, data, s),
                     invalid, "overlap, but not in place");
        expect_error(
            vescomm_gpu_reduce_scatter_v(g, layout, VESCOMM_F8E4M3, VESCOMM_SUM, data, nullptr, s),
            unsupported, "f8e4m3");
        expect_error(vescomm_gpu_reduce_scatter_v(g, layout, VESCOMM_F32, 99, data, nullptr, s),
                     invalid, "op 99 is no operator");
        expect_error(vescomm_gpu_all_reduce(g, data, data, 1, VESCOMM_I32, VESCOMM_AVERAGE, s),
                     unsupported, "average of elements of type i32");
        expect_error(vescomm_gpu_all_reduce(g, data, data, -1, VESCOMM_F32, VESCOMM_SUM, s),
                     invalid, "count is -1");
        expect_error(vescomm_gpu_all_reduce(g, data, data + 1, 2, VESCOMM_F32, VESCOMM_SUM, s),
                     invalid, "overlap");
        expect_error(vescomm_gpu_broadcast(g, data, 1, VESCOMM_F32, 2, s), invalid,
                     "root is 2; ranks are 0 to 1");
        gpu_double::cudaSetDevice(7);
        expect_error(vescomm_gpu_broadcast(g, data, 1, VESCOMM_F32, 0, s), invalid,
                     "the current device is 7");
        gpu_double::cudaSetDevice(r.rank);
        // Nothing has happened: the communicator works.
        EXPECT_EQ(vescomm_gpu_broadcast(g, data, 1, VESCOMM_F32, 0, s), VESCOMM_OK);
        EXPECT_EQ(vescomm_gpu_wait(g, s), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
}

// Each rank has an error text of its own.
TEST(DeviceFailures, ArgumentsMayBeWrongForDifferentReasons) {
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        void *memory = nullptr;
        gpu_double::cudaSetDevice(r.rank + 4);
        expect_error(vescomm_gpu_malloc(r.gpu, 100, &memory), VESCOMM_ERROR_INVALID_ARGUMENT,
                     "the current device is " + std::to_string(r.rank + 4));
        gpu_double::cudaSetDevice(r.rank);
        EXPECT_EQ(vescomm_gpu_comm_check(r.gpu), VESCOMM_OK) << vescomm_get_last_error();
        EXPECT_EQ(vescomm_gpu_malloc(r.gpu, 100, &memory), VESCOMM_OK) << vescomm_get_last_error();
    });
    // The others learn the reason if it is wrong on one rank.
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        void *memory = nullptr;
        if (r.rank == 1) gpu_double::cudaSetDevice(5);
        const auto status = vescomm_gpu_malloc(r.gpu, 100, &memory);
        gpu_double::cudaSetDevice(r.rank);
        if (r.rank == 1) EXPECT_EQ(status, VESCOMM_ERROR_INVALID_ARGUMENT);
        else
            expect_error(status, VESCOMM_ERROR_MISMATCH,
                         "nothing, because its call failed: vescomm_gpu_malloc: the current device "
                         "is 5");
        // A free that learns of the failure while it waits would return it.
        while (vescomm_gpu_comm_check(r.gpu) == VESCOMM_OK) std::this_thread::yield();
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceFailures, ExplanationsRefuseWhatCallsRefuse) {
    run_device_ranks(2, device_options(), [](DeviceRank &r) {
        const VectorLayout layout({1, 2});
        const char *text = nullptr;
        expect_error(vescomm_gpu_explain(r.gpu, layout, VESCOMM_F32, 7, &text),
                     VESCOMM_ERROR_INVALID_ARGUMENT, "reduces is 7; use 0 or 1");
        expect_error(vescomm_gpu_explain(r.gpu, layout, VESCOMM_F8E4M3, 1, &text),
                     VESCOMM_ERROR_UNSUPPORTED, "f8e4m3");
        EXPECT_EQ(vescomm_gpu_explain(r.gpu, layout, VESCOMM_F8E4M3, 0, &text), VESCOMM_OK);
    });
    run_devices(node_of_ranks(2), [](DeviceRank &r) {
        vescomm_gpu_comm_options_t options = device_options();
        options.shrinkable = 7;
        expect_error(r.create(options), VESCOMM_ERROR_INVALID_ARGUMENT,
                     "shrinkable is 7; use 0 or 1");
        expect_error(r.create(device_options(r.rank == 1 ? "rooted" : nullptr)),
                     VESCOMM_ERROR_MISMATCH, "method is NULL on rank 0 and rooted on rank 1");
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceFailures, ReproducibleSumsAreRefused) {
    TestSetup setup = node_of_ranks(2);
    setup.config.reproducible = "yes";
    run_devices(setup, [](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options()), VESCOMM_OK);
        auto *data = r.array<float>(1);
        expect_error(
            vescomm_gpu_all_reduce(r.gpu, data, data, 1, VESCOMM_F32, VESCOMM_SUM, r.stream),
            VESCOMM_ERROR_UNSUPPORTED, "reproducible");
        // Sums of integers are the same in any order.
        auto *words = r.upload(std::vector<std::int64_t>{r.rank + 5, std::int64_t{1} << 62});
        EXPECT_EQ(
            vescomm_gpu_all_reduce(r.gpu, words, words, 2, VESCOMM_I64, VESCOMM_SUM, r.stream),
            VESCOMM_OK);
        EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
        EXPECT_EQ(r.read(words, 2), (std::vector<std::int64_t>{11, INT64_MIN}));
    });
}

// Runs `body` on ranks that have an NCCL communicator of their own.
void run_nccl_ranks_beside(int ranks, const std::function<void(DeviceRank &, nccl::Comm)> &body) {
    nccl::UniqueId id;
    ASSERT_EQ(gpu_double::ncclGetUniqueId(&id), 0);
    run_devices(node_of_ranks(ranks), [&](DeviceRank &r) {
        nccl::Config config;
        config.blocking = 1;
        nccl::Comm own = nullptr;
        ASSERT_EQ(gpu_double::ncclCommInitRankConfig(&own, ranks, id, r.rank, &config), 0);
        body(r, own);
        EXPECT_EQ(gpu_double::ncclCommDestroy(own), 0);
    });
}

// ---- creation ----

TEST(DeviceFailures, DifferentOptionsAreFound) {
    run_devices(node_of_ranks(3), [](DeviceRank &r) {
        expect_error(r.create(device_options(nullptr, r.rank == 1 ? 4096 : 8192)),
                     VESCOMM_ERROR_MISMATCH,
                     "workspace_bytes is 8192 on rank 0 and 4096 on rank 1");
        EXPECT_EQ(r.create(device_options()), VESCOMM_OK) << "the communicator is not broken";
    });
    run_devices(node_of_ranks(2), [](DeviceRank &r) {
        expect_error(r.create(device_options("ring")), VESCOMM_ERROR_INVALID_ARGUMENT,
                     "there is no method \"ring\"");
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceFailures, EncryptionBetweenNodesIsRefused) {
    for (const int second : {0, 1}) {
        TestSetup setup = node_of_ranks(2);
        setup.node_of = {0, second};
        setup.config.encryption = "yes";
        run_devices(setup, [&](DeviceRank &r) {
            const auto status = r.create(device_options());
            if (second == 0) {
                EXPECT_EQ(status, VESCOMM_OK) << vescomm_get_last_error();
            } else expect_error(status, VESCOMM_ERROR_UNSUPPORTED, "VESCOMM_ENCRYPTION=yes");
        });
    }
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceFailures, TwoRanksNeedTwoDevices) {
    run_devices(node_of_ranks(2), [](DeviceRank &r) {
        gpu_double::cudaSetDevice(0);
        expect_error(r.create(device_options()), VESCOMM_ERROR_SYSTEM,
                     "(duplicate GPU); ranks 0 and 1 of one node both have the current device 0; "
                     "call cudaSetDevice(local rank)");
        gpu_double::cudaSetDevice(r.rank);
    });
    take_violations();
}

TEST(DeviceFailures, ARankWithoutAGpuIsNamed) {
    run_devices(node_of_ranks(3), [](DeviceRank &r) {
        try {
            agree_on_libraries(*r.parent.value, [&]() -> const GpuLibraries & {
                if (r.rank == 1) throw Error(VESCOMM_ERROR_UNSUPPORTED, "there is no GPU");
                return gpu_libraries();
            });
            FAIL() << "rank 1 has no libraries";
        } catch (const Error &error) {
            EXPECT_EQ(error.status, VESCOMM_ERROR_UNSUPPORTED);
            EXPECT_STREQ(error.what(),
                         "device communicator creation failed on rank 1: there is no GPU");
        }
        EXPECT_EQ(r.create(device_options()), VESCOMM_OK) << "the communicator is not broken";
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceFailures, FailuresOfCreationReachAllRanks) {
    for (const auto &[function, result, status] :
         {std::tuple{"ncclGetUniqueId", nccl::system_error, VESCOMM_ERROR_SYSTEM},
          std::tuple{"ncclMemAlloc", nccl::unhandled_cuda_error, VESCOMM_ERROR_OUT_OF_MEMORY},
          std::tuple{"cudaGetDevice", 999, VESCOMM_ERROR_SYSTEM},
          std::tuple{"ncclCommInitRankConfig", nccl::internal_error, VESCOMM_ERROR_SYSTEM}}) {
        SCOPED_TRACE(function);
        run_devices(hurried(node_of_ranks(3)),
                    [&, function = function, result = result, status = status](DeviceRank &r) {
                        r.parent.value->barrier();
                        if (r.rank == 0) fail_call(function, 0, result);
                        r.parent.value->barrier();
                        EXPECT_EQ(r.create(device_options()), status) << vescomm_get_last_error();
                        EXPECT_EQ(r.gpu, nullptr);
                        EXPECT_EQ(gpu_double::cudaGetLastError(), 0);
                    });
        fail_call("", 0, 0);
    }
    EXPECT_EQ(take_violations(), "");
}

// ---- communicators of the program ----

TEST(DeviceFailures, ACommunicatorOfTheProgramStaysIts) {
    run_nccl_ranks_beside(3, [](DeviceRank &r, nccl::Comm own) {
        vescomm_gpu_comm_options_t options = device_options();
        options.nccl_comm = own;
        ASSERT_EQ(r.create(options), VESCOMM_OK) << vescomm_get_last_error();
        auto *data = r.upload(std::vector<float>{1});
        EXPECT_EQ(vescomm_gpu_all_reduce(r.gpu, data, data, 1, VESCOMM_F32, VESCOMM_SUM, r.stream),
                  VESCOMM_OK);
        EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
        EXPECT_EQ(vescomm_gpu_comm_free(r.gpu), VESCOMM_OK);
        r.gpu = nullptr;
        EXPECT_EQ(gpu_double::ncclAllReduce(data, data, 1, nccl::f32, nccl::sum, own, r.stream), 0)
            << "it works after the device communicator was freed";
        EXPECT_EQ(r.read(data, 1)[0], 9);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceFailures, ACommunicatorOfOtherRanksIsRefused) {
    run_nccl_ranks_beside(2, [](DeviceRank &r, nccl::Comm own) {
        vescomm_gpu_comm_options_t options = device_options();
        if (r.rank == 0) options.nccl_comm = own;
        expect_error(r.create(options), VESCOMM_ERROR_MISMATCH,
                     "nccl_comm is given on rank 0 and NULL on rank 1");
        options.nccl_comm = own;
        gpu_double::cudaSetDevice(r.rank + 5);
        EXPECT_EQ(r.create(options), VESCOMM_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(std::string(vescomm_get_last_error()).find("rank 0 of 2 on device 0, and the "),
                  std::string::npos)
            << vescomm_get_last_error();
        gpu_double::cudaSetDevice(r.rank);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceFailures, TheCommunicatorMayBeFreedFirst) {
    run_device_ranks(3, device_options(), [](DeviceRank &r) {
        const int aborts = gpu_double::calls_of("ncclCommAbort");
        r.parent.value->finalize();
        EXPECT_EQ(vescomm_gpu_comm_free(r.gpu), VESCOMM_OK);
        r.gpu = nullptr;
        EXPECT_EQ(gpu_double::calls_of("ncclCommAbort"), aborts) << "the end is orderly";
    });
    EXPECT_EQ(take_violations(), "");
}

// ---- running ----

// Starts an all_gather_v of ragged shards.
vescomm_status_t gather(DeviceRank &r, float *data) {
    std::vector<std::int64_t> counts;
    for (int k = 0; k < r.ranks; ++k) counts.push_back(k + 1);
    return vescomm_gpu_all_gather_v(r.gpu, VectorLayout(counts), VESCOMM_F32, nullptr, data,
                                    r.stream);
}

TEST(DeviceFailures, AFailedCallBreaksTheCommunicatorOfAllRanks) {
    for (const char *function : {"ncclBroadcast", "ncclGroupStart", "ncclGroupEnd"}) {
        SCOPED_TRACE(function);
        std::barrier<> all(3);  // not one of the communicator, which breaks
        run_device_ranks(3, device_options("rooted"), [&](DeviceRank &r) {
            auto *data = r.array<float>(6);
            all.arrive_and_wait();
            // Not INVALID_ARGUMENT, which means that nothing has happened.
            if (r.rank == 0) fail_call(function, 0, nccl::invalid_argument);
            all.arrive_and_wait();
            vescomm_status_t status = gather(r, data);
            if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
            expect_error(status, VESCOMM_ERROR_SYSTEM,
                         std::string(function) + "() failed on rank ");
            expect_error(gather(r, data), VESCOMM_ERROR_SYSTEM, "invalid argument");
            // The work of this rank has ended.
            EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
        });
        fail_call("", 0, 0);
        EXPECT_EQ(take_violations(), "") << "the group is closed before the abort";
    }
}

TEST(DeviceFailures, ErrorsOfCudaDoNotStay) {
    run_device_ranks(1, device_options(), [](DeviceRank &r) {
        auto *data = r.array<float>(6);
        // A kernel that runs until the wait asks for its stream a second time.
        const int asked = gpu_double::calls_of("cudaStreamQuery");
        gpu_double::launch(r.stream, "kernel", {}, [asked] {
            while (gpu_double::calls_of("cudaStreamQuery") < asked + 2) std::this_thread::yield();
        });
        EXPECT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
        EXPECT_EQ(gpu_double::cudaGetLastError(), 0) << "not ready is no error";
        fail_call("cudaGetDevice", 0, 999);
        expect_error(gather(r, data), VESCOMM_ERROR_SYSTEM, "cudaGetDevice() failed on rank 0");
        EXPECT_EQ(gpu_double::cudaGetLastError(), 0);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceFailures, AnAsynchronousErrorEndsTheWaitOfAllRanks) {
    std::barrier<> all(3);
    run_device_ranks(3, device_options(), [&](DeviceRank &r) {
        auto *data = r.array<float>(6);
        all.arrive_and_wait();
        if (r.rank == 2) break_device(2, nccl::remote_error);
        all.arrive_and_wait();
        vescomm_status_t status = gather(r, data);
        if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
        // Rank 2 finds it while NCCL starts the call, or in its wait.
        expect_error(status, VESCOMM_ERROR_PEER_FAILED, "failed on rank 2: remote process");
        EXPECT_EQ(vescomm_gpu_comm_check(r.gpu), VESCOMM_ERROR_PEER_FAILED);
        EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
    });
    EXPECT_EQ(take_violations(), "");
}

// A kernel of the program on rank 1 has the address of a local variable.
TEST(DeviceFailures, AnIllegalAddressEndsTheWaitOfAllRanks) {
    std::barrier<> all(2);
    run_device_ranks(2, device_options(), [&](DeviceRank &r) {
        auto *data = r.array<float>(3);
        const float local = 1;
        all.arrive_and_wait();  // all ranks have left the creation
        if (r.rank == 1) gpu_double::launch(r.stream, "kernel", {{&local, 4, false}}, [] {});
        vescomm_status_t status = gather(r, data);
        if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
        expect_error(status, VESCOMM_ERROR_SYSTEM, "on rank 1: ");
        // Rank 0 ends its work, which rank 1 does not share.
        EXPECT_EQ(cudaStreamSynchronize(r.stream), r.rank == 1 ? 700 : 0);
        gpu_double::cudaGetLastError();
        EXPECT_EQ(vescomm_gpu_comm_free(r.gpu), VESCOMM_OK) << vescomm_get_last_error();
        r.gpu = nullptr;
        all.arrive_and_wait();
    });
    EXPECT_THAT_VIOLATION("^kernel reads host memory that is not pinned\n$");
}

TEST(DeviceFailures, ARankThatDoesNotCallIsATimeout) {
    run_devices(hurried(node_of_ranks(2)), [](DeviceRank &r) {
        ASSERT_EQ(r.create(device_options()), VESCOMM_OK);
        auto *data = r.array<float>(3);
        if (r.rank == 0) {
            EXPECT_EQ(gather(r, data), VESCOMM_OK);
            expect_error(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_ERROR_TIMEOUT,
                         "rank 0 waited for the work of a stream until its deadline");
        } else {
            while (vescomm_gpu_comm_check(r.gpu) == VESCOMM_OK) std::this_thread::yield();
            expect_error(gather(r, data), VESCOMM_ERROR_TIMEOUT, "rank 0 waited");
        }
        EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
    });
    EXPECT_EQ(take_violations(), "");
}

// NCCL connects in its first calls, which wait for other ranks and cannot be left.
TEST(DeviceFailures, ACallThatNcclDoesNotEndIsEnded) {
    for (const bool revokes : {true, false})
        for (const bool aborts : {true, false}) {
            SCOPED_TRACE(testing::Message() << "revokes " << revokes << ", aborts " << aborts);
            GpuLibraries libraries = gpu_libraries();
            if (!revokes) libraries.nccl.comm_revoke = nullptr;
            std::barrier<> all(2);
            run_devices(aborts ? node_of_ranks(2) : hurried(node_of_ranks(2)), [&](DeviceRank &r) {
                auto *data = r.array<float>(1);
                const auto comm = DeviceCommunicator::create(r.parent.value, {}, libraries);
                if (r.rank == 0) gpu_double::hold_call(0);
                all.arrive_and_wait();
                if (r.rank == 1 && aborts) r.parent.value->abort("rank 1 gives up");
                try {
                    device::all_reduce(*comm, data, data, 1, VESCOMM_F32, VESCOMM_SUM, r.stream);
                    comm->wait(r.stream);
                    ADD_FAILURE() << "the sum needs both ranks";
                } catch (const Error &error) {
                    EXPECT_EQ(error.status, aborts ? VESCOMM_ERROR_ABORTED : VESCOMM_ERROR_TIMEOUT)
                        << error.what();
                }
                EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
            });
            EXPECT_EQ(take_violations(), "");
        }
}

TEST(DeviceFailures, AnAbortEndsTheWaits) {
    std::barrier<> all(3);
    run_device_ranks(3, device_options(), [&](DeviceRank &r) {
        auto *data = r.array<float>(6);
        all.arrive_and_wait();
        if (r.rank == 1) r.parent.value->abort("rank 1 gives up");
        vescomm_status_t status = gather(r, data);
        if (status == VESCOMM_OK) status = vescomm_gpu_wait(r.gpu, r.stream);
        expect_error(status, VESCOMM_ERROR_ABORTED, "rank 1 gives up");
        EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
    });
    EXPECT_EQ(take_violations(), "");
}

// ---- mutations ----

thread_local int mutated_rank = -1;  // number of the calling rank

// Runs a ragged collective with changed libraries.
void run_mutated(const GpuLibraries &libraries, const char *method, bool allocate,
                 const std::function<void(DeviceCommunicator &, float *, cuda::Stream)> &call) {
    setenv("GPU_DOUBLE_SECONDS", "1", 1);
    run_devices(hurried(node_of_ranks(2)), [&](DeviceRank &r) {
        mutated_rank = r.rank;
        auto *data = r.array<float>(6);
        try {
            DeviceCommunicator::Options options;
            options.workspace_bytes = 4096;
            options.method = method;
            const auto comm = DeviceCommunicator::create(r.parent.value, options, libraries);
            if (allocate) data = static_cast<float *>(comm->allocate(24));
            call(*comm, data, r.stream);
            comm->wait(r.stream);
        } catch (const Error &) {
            // The double stops the work that breaks a rule.
        }
    });
    unsetenv("GPU_DOUBLE_SECONDS");
}

const Layout &ragged() {
    static const Layout layout = Layout::from_counts(std::vector<std::int64_t>{2, 4});
    return layout;
}

void gather_ragged(DeviceCommunicator &comm, float *data, cuda::Stream stream) {
    device::all_gather_v(comm, ragged(), VESCOMM_F32, nullptr, data, stream);
}

TEST(DeviceMutations, NoMutationIsNoViolation) {
    for (const char *method : {"rooted", "padded", "messages"})
        run_mutated(gpu_libraries(), method, true, gather_ragged);
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceMutations, AWrongCountIsFound) {
    GpuLibraries libraries = gpu_libraries();
    libraries.nccl.broadcast = [](const void *source, void *output, std::size_t count,
                                  nccl::Type type, int root, nccl::Comm comm, cuda::Stream stream) {
        return gpu_double::ncclBroadcast(source, output, count - (mutated_rank == 1 ? 1 : 0), type,
                                         root, comm, stream);
    };
    run_mutated(libraries, "rooted", false, gather_ragged);
    EXPECT_THAT_VIOLATION("make different calls: ncclBroadcast.8 .*ncclBroadcast.7 ");
}

TEST(DeviceMutations, AMissingGroupEndIsFound) {
    GpuLibraries libraries = gpu_libraries();
    libraries.nccl.group_end = [] { return nccl::success; };
    run_mutated(libraries, "rooted", false, gather_ragged);
    EXPECT_THAT_VIOLATION("a wait within an open group.*ncclGroupEnd.. is missing");
}

TEST(DeviceMutations, AnUnregisteredBufferIsFound) {
    GpuLibraries libraries = gpu_libraries();
    libraries.nccl.comm_window_register = [](nccl::Comm comm, void *pointer, std::size_t bytes,
                                             nccl::Window *window, int flags) {
        return mutated_rank == 1
                   ? nccl::success
                   : gpu_double::ncclCommWindowRegister(comm, pointer, bytes, window, flags);
    };
    libraries.nccl.comm_register = [](nccl::Comm comm, void *pointer, std::size_t bytes,
                                      void **registration) {
        return mutated_rank == 1 ? nccl::success
                                 : gpu_double::ncclCommRegister(comm, pointer, bytes, registration);
    };
    run_mutated(libraries, "rooted", true, gather_ragged);
    EXPECT_THAT_VIOLATION("on registered memory and on unregistered memory");
}

TEST(DeviceMutations, AMissingStreamDependencyIsFound) {
    SKIP_RACE_WITH_THREAD_SANITIZER();
    GpuLibraries libraries = gpu_libraries();
    libraries.cuda.memcpy_async = [](void *target, const void *source, std::size_t bytes, int kind,
                                     cuda::Stream) {
        return gpu_double::cudaMemcpyAsync(target, source, bytes, kind, nullptr);
    };
    run_mutated(libraries, "padded", false, gather_ragged);
    EXPECT_THAT_VIOLATION("without a stream dependency on ");
}

// A rank that waits in CUDA makes no call of vescomm that would end NCCL's kernels.
TEST(DeviceFailures, EndKernelsForWhichTheProgramWaitsInCuda) {
    const int living = gpu_double::live_communicators();
    for (const bool shrinkable : {false, true}) {
        std::barrier<> started(2);
        vescomm_gpu_comm_options_t options = device_options();
        options.shrinkable = shrinkable ? 1 : 0;
        run_devices(node_of_ranks(2), [&](DeviceRank &r) {
            ASSERT_EQ(r.create(options), VESCOMM_OK) << vescomm_get_last_error();
            auto *data = r.array<float>(8);
            const auto sum = [&] {
                return vescomm_gpu_all_reduce(r.gpu, data, data, 8, VESCOMM_F32, VESCOMM_SUM,
                                              r.stream);
            };
            ASSERT_EQ(sum(), VESCOMM_OK);  // NCCL connects
            ASSERT_EQ(vescomm_gpu_wait(r.gpu, r.stream), VESCOMM_OK);
            if (r.rank == 0) {
                ASSERT_EQ(sum(), VESCOMM_OK);
            }
            started.arrive_and_wait();
            if (r.rank == 1) r.parent.value->abort("rank 1 gives up");
            else EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
            expect_error(vescomm_gpu_comm_check(r.gpu), VESCOMM_ERROR_ABORTED, "rank 1 gives up");
            vescomm_gpu_comm_free(r.gpu);  // returns the failure
            r.gpu = nullptr;
        });
        EXPECT_EQ(take_violations(), "");
        EXPECT_EQ(gpu_double::live_communicators(), living);
    }
}

}  // namespace
}  // namespace vescomm::internal
