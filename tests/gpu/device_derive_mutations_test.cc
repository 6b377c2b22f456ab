// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Mutations of the calls by which vescomm splits and shrinks communicators of NCCL. The test double
// or vescomm finds each of them.
#include <gtest/gtest.h>

#include <barrier>
#include <mutex>
#include <thread>

#include "gpu/session_ranks.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using gpu_double::live_communicators;
using gpu_double::take_violations;

// Splits three ranks with changed libraries. Returns the errors of all ranks.
std::string split_mutated(const GpuLibraries &libraries) {
    std::string errors;
    std::mutex mutex;
    setenv("GPU_DOUBLE_SECONDS", "5", 1);
    run_session(
        3,
        [&](SessionRank &r) {
            vescomm_comm_t *part = r.split_host(0, 0);
            try {
                const auto parent = DeviceCommunicator::create(r.comm->value, {}, libraries);
                auto *data = r.array<float>(1);
                libraries.nccl.all_reduce(data, data, 1, nccl::f32, nccl::sum, parent->nccl(),
                                          r.stream);
                const auto made = DeviceCommunicator::split(*parent, part->value, {});
            } catch (const Error &error) {
                const std::lock_guard lock(mutex);
                errors += std::string(error.what()) + "\n";
            }
            EXPECT_EQ(cudaStreamSynchronize(r.stream), 0);
            EXPECT_EQ(vescomm_comm_free(part), VESCOMM_OK);
        },
        2);
    unsetenv("GPU_DOUBLE_SECONDS");
    return errors;
}

int rank_of(nccl::Comm comm) {
    int rank = -1;
    gpu_double::ncclCommUserRank(comm, &rank);
    return rank;
}

TEST(DeviceSplitMutations, NoMutationIsNoViolation) {
    EXPECT_EQ(split_mutated(gpu_libraries()), "");
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceSplitMutations, AnotherOrderIsFound) {
    GpuLibraries libraries = gpu_libraries();
    libraries.nccl.comm_split = [](nccl::Comm comm, int color, int key, nccl::Comm *child,
                                   nccl::Config *config) {
        return gpu_double::ncclCommSplit(comm, color, rank_of(comm) == 1 ? 7 : key, child, config);
    };
    const std::string errors = split_mutated(libraries);
    EXPECT_NE(errors.find("failed on rank 1: ncclCommSplit() made rank 2 of 3, which must be rank "
                          "1 of 3"),
              std::string::npos)
        << errors;
    EXPECT_EQ(take_violations(), "");
    EXPECT_EQ(live_communicators(), 0);
}

TEST(DeviceSplitMutations, AnotherColorIsFound) {
    GpuLibraries libraries = gpu_libraries();
    libraries.nccl.comm_split = [](nccl::Comm comm, int color, int key, nccl::Comm *child,
                                   nccl::Config *config) {
        return gpu_double::ncclCommSplit(comm, rank_of(comm) == 2 ? 1 : color, key, child, config);
    };
    const std::string errors = split_mutated(libraries);
    EXPECT_NE(errors.find("made rank 0 of 2, which must be rank 0 of 3"), std::string::npos)
        << errors;
    EXPECT_EQ(live_communicators(), 0);
}

TEST(DeviceSplitMutations, AMissingRankIsFound) {
    GpuLibraries libraries = gpu_libraries();
    libraries.nccl.comm_split = [](nccl::Comm comm, int color, int key, nccl::Comm *child,
                                   nccl::Config *config) {
        if (rank_of(comm) == 1) return nccl::success;
        return gpu_double::ncclCommSplit(comm, color, key, child, config);
    };
    const std::string errors = split_mutated(libraries);
    EXPECT_NE(errors.find("waited for ncclCommSplit() until its deadline"), std::string::npos)
        << errors;
    EXPECT_EQ(live_communicators(), 0);
}

TEST(DeviceSplitMutations, AMissingWaitForTheDeviceIsFound) {
    GpuLibraries libraries = gpu_libraries();
    libraries.cuda.device_synchronize = [] { return cuda::success; };
    libraries.nccl.all_reduce = [](const void *source, void *output, std::size_t count,
                                   nccl::Type type, nccl::Op op, nccl::Comm comm,
                                   cuda::Stream stream) {
        // Work that runs until all ranks have called ncclCommSplit().
        const int before = gpu_double::calls_of("ncclCommSplit");
        gpu_double::launch(stream, "kernel", {}, [before] {
            while (gpu_double::calls_of("ncclCommSplit") < before + 3) std::this_thread::yield();
        });
        return gpu_double::ncclAllReduce(source, output, count, type, op, comm, stream);
    };
    split_mutated(libraries);
    EXPECT_THAT_VIOLATION("ncclCommSplit.. while the communicator has outstanding work");
}

// Shrinks two survivors of three ranks with changed libraries.
void shrink_mutated(const GpuLibraries &libraries) {
    std::barrier<> all(3);
    run_session(
        3,
        [&](SessionRank &r) {
            DeviceCommunicator::Options options;
            options.shrinkable = true;
            const auto parent = DeviceCommunicator::create(r.comm->value, options, libraries);
            all.arrive_and_wait();
            if (r.rank == 1) {
                gpu_double::kill_device(1);
                vescomm_comm_abort(r.comm, "rank 1 has ended");
            } else {
                try {
                    for (;;) parent->check();
                } catch (const Error &) {
                    // Rank 1 has ended.
                }
                vescomm_comm_t *comm = r.shrink_host({1});
                try {
                    DeviceCommunicator::shrink(*parent, comm->value, {});
                } catch (const Error &) {
                    // The double ends a call that breaks a rule.
                }
                EXPECT_EQ(vescomm_comm_free(comm), VESCOMM_OK);
            }
            all.arrive_and_wait();
        },
        5);
}

TEST(DeviceShrinkMutations, NoMutationIsNoViolation) {
    shrink_mutated(gpu_libraries());
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceShrinkMutations, AMissingAbortIsFound) {
    GpuLibraries libraries = gpu_libraries();
    libraries.nccl.comm_shrink = [](nccl::Comm comm, int *excluded, int count, nccl::Comm *child,
                                    nccl::Config *config, int) {
        return gpu_double::ncclCommShrink(comm, excluded, count, child, config,
                                          nccl::shrink_default);
    };
    shrink_mutated(libraries);
    EXPECT_THAT_VIOLATION("without NCCL_SHRINK_ABORT of a communicator with a failed rank");
}

TEST(DeviceShrinkMutations, DifferentExclusionsAreFound) {
    static int before = 0;  // calls of earlier tests
    before = gpu_double::calls_of("ncclCommShrink");
    GpuLibraries libraries = gpu_libraries();
    libraries.nccl.comm_shrink = [](nccl::Comm comm, int *excluded, int count, nccl::Comm *child,
                                    nccl::Config *config, int flags) {
        int rank = -1;
        gpu_double::ncclCommUserRank(comm, &rank);
        if (rank == 0) {
            // The dead rank, which rank 0 does not exclude, ends its call: rank 2 must be there.
            while (gpu_double::calls_of("ncclCommShrink") == before) std::this_thread::yield();
            excluded[0] = 2;
        }
        return gpu_double::ncclCommShrink(comm, excluded, count, child, config, flags);
    };
    shrink_mutated(libraries);
    EXPECT_THAT_VIOLATION("make different calls: they exclude ranks 2 and ranks 1");
}

}  // namespace
}  // namespace vescomm::internal
