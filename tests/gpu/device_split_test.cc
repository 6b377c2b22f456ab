// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Device communicators that are split through NCCL.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "gpu/session_ranks.h"

namespace vescomm::internal {
namespace {

using namespace testing_support;
using gpu_double::calls_of;
using gpu_double::fail_call;
using gpu_double::live_communicators;
using gpu_double::take_violations;

constexpr auto invalid = VESCOMM_ERROR_INVALID_ARGUMENT;

struct Part {
    vescomm_comm_t *comm = nullptr;
    vescomm_gpu_comm_t *gpu = nullptr;

    void free() {
        EXPECT_EQ(vescomm_gpu_comm_free(gpu), VESCOMM_OK);
        EXPECT_EQ(vescomm_comm_free(comm), VESCOMM_OK);
    }
};

// Splits the device communicator of a rank, and expects success.
Part split(SessionRank &r, int color, int key,
           const vescomm_gpu_comm_options_t *options = nullptr) {
    Part part;
    part.comm = r.split_host(color, key);
    EXPECT_EQ(vescomm_gpu_comm_split(r.gpu, part.comm, options, &part.gpu), VESCOMM_OK)
        << vescomm_get_last_error();
    EXPECT_EQ(part.gpu == nullptr, color < 0);
    return part;
}

TEST(DeviceSplit, PartsAndTheParentGiveTheirValues) {
    for (const int ranks : {1, 2, 3, 4, 5}) {
        SCOPED_TRACE(ranks);
        const int splits = calls_of("ncclCommSplit");
        const int creations = calls_of("ncclCommInitRankConfig");
        run_session(ranks, [&](SessionRank &r) {
            ASSERT_EQ(r.create(), VESCOMM_OK) << vescomm_get_last_error();
            // Even and odd ranks, in the opposite order.
            Part half = split(r, r.rank % 2, -r.rank);
            EXPECT_TRUE(is_derived(half.gpu));
            EXPECT_FALSE(is_derived(r.gpu));
            expect_values(r, half.gpu, half.comm);
            expect_values(r, r.gpu, r.comm);
            // Rank 0 is in no part.
            Part rest = split(r, r.rank == 0 ? -1 : 3, 0);
            if (rest.gpu != nullptr) expect_values(r, rest.gpu, rest.comm);
            expect_values(r, half.gpu, half.comm);
            rest.free();
            half.free();
            expect_values(r, r.gpu, r.comm);
        });
        EXPECT_EQ(calls_of("ncclCommSplit") - splits, 2 * ranks);
        EXPECT_EQ(calls_of("ncclCommInitRankConfig") - creations, ranks);
        EXPECT_EQ(take_violations(), "");
        EXPECT_EQ(live_communicators(), 0);
    }
}

TEST(DeviceSplit, PartsAreSplitAndOutliveTheirParent) {
    run_session(4, [](SessionRank &r) {
        ASSERT_EQ(r.create(), VESCOMM_OK);
        Part half = split(r, r.rank / 2, 0);
        Part one;
        ASSERT_EQ(vescomm_comm_split(half.comm, r.rank, 0, nullptr, &one.comm), VESCOMM_OK);
        ASSERT_EQ(vescomm_gpu_comm_split(half.gpu, one.comm, nullptr, &one.gpu), VESCOMM_OK)
            << vescomm_get_last_error();
        EXPECT_EQ(vescomm_gpu_comm_free(r.gpu), VESCOMM_OK);
        r.gpu = nullptr;
        expect_values(r, half.gpu, half.comm);
        half.free();
        expect_values(r, one.gpu, one.comm);
        one.free();
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceSplit, OptionsAreThoseOfThePart) {
    run_session(4, [](SessionRank &r) {
        ASSERT_EQ(r.create(), VESCOMM_OK);
        auto options = vescomm_gpu_comm_options_init();
        options.method = "padded";
        options.workspace_bytes = r.rank < 2 ? 1 << 16 : 1 << 17;
        Part half = split(r, r.rank / 2, 0, &options);
        expect_values(r, half.gpu, half.comm);
        half.free();
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceSplit, WaitsForTheWorkOfTheParent) {
    run_session(2, [](SessionRank &r) {
        ASSERT_EQ(r.create(), VESCOMM_OK);
        std::atomic<bool> open{false};
        auto *data = r.array<float>(1);
        gpu_double::launch(r.stream, "kernel", {}, [&] { open.wait(false); });
        ASSERT_EQ(vescomm_gpu_all_reduce(r.gpu, data, data, 1, VESCOMM_F32, VESCOMM_SUM, r.stream),
                  VESCOMM_OK);
        std::thread opener([&] {
            open = true;
            open.notify_all();
        });
        split(r, 0, 0).free();
        opener.join();
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceSplit, APartWithoutMemoryLeavesTheParentAsItIs) {
    run_session(4, [](SessionRank &r) {
        ASSERT_EQ(r.create(), VESCOMM_OK);
        const bool fails = r.rank >= 2;
        vescomm_gpu_comm_options_t options = vescomm_gpu_comm_options_init();
        if (fails) options.workspace_bytes = std::uint64_t{1} << 45;
        Part part;
        part.comm = r.split_host(fails ? 1 : 0, 0);
        const auto status = vescomm_gpu_comm_split(r.gpu, part.comm, &options, &part.gpu);
        EXPECT_EQ(status, fails ? VESCOMM_ERROR_OUT_OF_MEMORY : VESCOMM_OK)
            << vescomm_get_last_error();
        EXPECT_EQ(part.gpu == nullptr, fails);
        if (!fails) expect_values(r, part.gpu, part.comm);
        expect_values(r, r.gpu, r.comm);
        part.free();
    });
    EXPECT_EQ(take_violations(), "");
    EXPECT_EQ(live_communicators(), 0);
}

// ---- without ncclCommSplit() ----

TEST(DeviceSplit, AllRanksCreateANewCommunicatorIfOneCannotSplit) {
    for (const bool lacks_revoke : {false, true}) {
        const int splits = calls_of("ncclCommSplit");
        run_session(3, [&](SessionRank &r) {
            GpuLibraries libraries = gpu_libraries();
            if (r.rank == 1 && lacks_revoke) libraries.nccl.comm_revoke = nullptr;
            if (r.rank == 1 && !lacks_revoke) libraries.nccl.comm_split = nullptr;
            const auto parent = DeviceCommunicator::create(r.comm->value, {}, libraries);
            vescomm_comm_t *part = r.split_host(r.rank == 2 ? -1 : 0, 0);
            vescomm_gpu_comm made;
            made.value =
                DeviceCommunicator::split(*parent, part != nullptr ? part->value : nullptr, {});
            EXPECT_EQ(made.value == nullptr, r.rank == 2);
            if (made.value != nullptr) {
                made.value->complete_split();
                made.parent = part->value;
                EXPECT_FALSE(made.value->derived());
                expect_values(r, &made, part);
                made.value.reset();
            }
            EXPECT_EQ(vescomm_comm_free(part), VESCOMM_OK);
        });
        EXPECT_EQ(calls_of("ncclCommSplit"), splits);
        EXPECT_EQ(take_violations(), "");
    }
}

TEST(DeviceSplit, ACommunicatorOfTheProgramIsNotSplit) {
    nccl::UniqueId id;
    ASSERT_EQ(gpu_double::ncclGetUniqueId(&id), 0);
    const int splits = calls_of("ncclCommSplit");
    run_session(2, [&](SessionRank &r) {
        nccl::Config config;
        config.blocking = 1;
        auto options = vescomm_gpu_comm_options_init();
        nccl::Comm own = nullptr;
        ASSERT_EQ(gpu_double::ncclCommInitRankConfig(&own, 2, id, r.rank, &config), 0);
        options.nccl_comm = own;
        ASSERT_EQ(r.create(&options), VESCOMM_OK) << vescomm_get_last_error();
        Part both = split(r, 0, 0);
        EXPECT_FALSE(is_derived(both.gpu));
        expect_values(r, both.gpu, both.comm);
        // The part has a communicator of vescomm, which is split.
        Part again;
        again.comm = r.split_host(0, -r.rank);
        ASSERT_EQ(vescomm_gpu_comm_split(both.gpu, again.comm, nullptr, &again.gpu), VESCOMM_OK);
        EXPECT_TRUE(is_derived(again.gpu));
        again.free();
        both.free();
        EXPECT_EQ(vescomm_gpu_comm_free(r.gpu), VESCOMM_OK);
        r.gpu = nullptr;
        EXPECT_EQ(gpu_double::ncclCommDestroy(own), 0);
    });
    EXPECT_EQ(calls_of("ncclCommSplit") - splits, 2);
    EXPECT_EQ(take_violations(), "");
}

// ---- wrong arguments ----

TEST(DeviceSplit, WrongArgumentsHaveNoEffect) {
    run_session(4, [](SessionRank &r) {
        ASSERT_EQ(r.create(), VESCOMM_OK);
        vescomm_gpu_comm_t *out = nullptr;
        auto options = vescomm_gpu_comm_options_init();
        options.nccl_comm = &options;
        expect_status(vescomm_gpu_comm_split(r.gpu, r.comm, &options, &out), invalid,
                      "nccl_comm is given, and the communicator is made from the parent");
        Part half = split(r, r.rank / 2, 0);
        // The other half has another parent.
        expect_status(vescomm_gpu_comm_split(half.gpu, r.comm, nullptr, &out), invalid,
                      "has 4 ranks, of which 2 make this call");
        EXPECT_EQ(out, nullptr);
        expect_values(r, half.gpu, half.comm);
        half.free();
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceSplit, ARankThatDoesNotPassItsCommunicatorIsNamed) {
    run_session(
        3,
        [](SessionRank &r) {
            ASSERT_EQ(r.create(), VESCOMM_OK);
            vescomm_gpu_comm_t *out = nullptr;
            vescomm_comm_t *part = r.split_host(r.rank == 0 ? -1 : 0, 0);
            expect_status(
                vescomm_gpu_comm_split(r.gpu, r.rank == 2 ? nullptr : part, nullptr, &out),
                VESCOMM_ERROR_TIMEOUT, "rank 1");
            EXPECT_EQ(vescomm_comm_free(part), VESCOMM_OK);
        },
        1);
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceSplit, OptionsOfOnePartMustBeEqual) {
    run_session(3, [](SessionRank &r) {
        ASSERT_EQ(r.create(), VESCOMM_OK);
        vescomm_gpu_comm_t *out = nullptr;
        vescomm_comm_t *part = r.split_host(r.rank == 0 ? 0 : 1, 0);
        auto options = vescomm_gpu_comm_options_init();
        options.workspace_bytes = r.rank == 2 ? 4096 : 0;
        // Also on rank 0, whose part has no other rank.
        expect_status(vescomm_gpu_comm_split(r.gpu, part, &options, &out), VESCOMM_ERROR_MISMATCH,
                      "workspace_bytes is 0 on rank 0 and 4096 on rank 1");
        options.workspace_bytes = 0;
        ASSERT_EQ(vescomm_gpu_comm_split(r.gpu, part, &options, &out), VESCOMM_OK)
            << "the parent is not broken: " << vescomm_get_last_error();
        EXPECT_EQ(vescomm_gpu_comm_free(out), VESCOMM_OK);
        EXPECT_EQ(vescomm_comm_free(part), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
}

TEST(DeviceSplit, TheDeviceOfTheParentIsCurrentAndNotCaptured) {
    run_session(2, [](SessionRank &r) {
        ASSERT_EQ(r.create(), VESCOMM_OK);
        vescomm_gpu_comm_t *out = nullptr;
        vescomm_comm_t *part = r.split_host(0, 0);
        if (r.rank == 1) gpu_double::cudaSetDevice(7);
        expect_status(vescomm_gpu_comm_split(r.gpu, part, nullptr, &out), invalid,
                      "failed on rank 1: vescomm_gpu_comm_split: the current device is 7");
        gpu_double::cudaSetDevice(r.rank);
        CUgraph_st *graph = nullptr;
        if (r.rank == 0) {
            ASSERT_EQ(cudaStreamBeginCapture(r.stream, 1), 0);
        }
        expect_status(
            vescomm_gpu_comm_split(r.gpu, part, nullptr, &out), invalid,
            "failed on rank 0: vescomm_gpu_comm_split: a stream of the device is captured");
        if (r.rank == 0) {
            EXPECT_NE(cudaStreamEndCapture(r.stream, &graph), 0);
        }
        EXPECT_EQ(gpu_double::cudaGetLastError(), 0);
        ASSERT_EQ(vescomm_gpu_comm_split(r.gpu, part, nullptr, &out), VESCOMM_OK)
            << vescomm_get_last_error();
        EXPECT_EQ(vescomm_gpu_comm_free(out), VESCOMM_OK);
        EXPECT_EQ(vescomm_comm_free(part), VESCOMM_OK);
    });
    EXPECT_THAT_VIOLATION("a wait for the device during the capture of a graph");
}

// ---- failures ----

TEST(DeviceSplit, AFailureOfNcclReachesAllRanksOfTheParent) {
    std::barrier<> all(3);
    run_session(3, [&](SessionRank &r) {
        ASSERT_EQ(r.create(), VESCOMM_OK);
        vescomm_gpu_comm_t *out = nullptr;
        vescomm_comm_t *part = r.split_host(r.rank == 2 ? -1 : 0, 0);
        all.arrive_and_wait();
        if (r.rank == 0) fail_call("ncclCommSplit", 0, nccl::system_error);
        all.arrive_and_wait();
        expect_status(vescomm_gpu_comm_split(r.gpu, part, nullptr, &out), VESCOMM_ERROR_SYSTEM,
                      "ncclCommSplit() failed on rank ");
        EXPECT_EQ(out, nullptr);
        expect_status(vescomm_gpu_comm_check(r.gpu), VESCOMM_ERROR_SYSTEM,
                      "ncclCommSplit() failed on rank ");
        EXPECT_EQ(vescomm_comm_free(part), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
    EXPECT_EQ(live_communicators(), 0);
}

TEST(DeviceSplit, ACallThatDoesNotEndIsEnded) {
    for (const bool aborts : {true, false}) {
        SCOPED_TRACE(aborts);
        std::barrier<> all(2);
        run_session(
            2,
            [&](SessionRank &r) {
                ASSERT_EQ(r.create(), VESCOMM_OK);
                vescomm_gpu_comm_t *out = nullptr;
                vescomm_comm_t *part = r.split_host(0, 0);
                const int before = calls_of("ncclCommSplit");
                all.arrive_and_wait();
                if (r.rank == 0) gpu_double::hold_call(0);
                all.arrive_and_wait();
                std::thread aborter;
                if (r.rank == 1 && aborts)
                    aborter = std::thread([&] {
                        while (calls_of("ncclCommSplit") < before + 2) std::this_thread::yield();
                        vescomm_comm_abort(r.comm, "rank 1 gives up");
                    });
                expect_status(vescomm_gpu_comm_split(r.gpu, part, nullptr, &out),
                              aborts ? VESCOMM_ERROR_ABORTED : VESCOMM_ERROR_TIMEOUT);
                EXPECT_EQ(out, nullptr);
                if (aborter.joinable()) aborter.join();
                EXPECT_EQ(vescomm_comm_free(part), VESCOMM_OK);
            },
            aborts ? 60 : 1);
        EXPECT_EQ(take_violations(), "");
        EXPECT_EQ(live_communicators(), 0);
    }
}

TEST(DeviceSplit, AFailureOfAPartEndsTheCall) {
    std::barrier<> all(3);
    run_session(3, [&](SessionRank &r) {
        ASSERT_EQ(r.create(), VESCOMM_OK);
        vescomm_gpu_comm_t *out = nullptr;
        vescomm_comm_t *part = r.split_host(r.rank == 2 ? 1 : 0, 0);
        const int before = calls_of("ncclCommSplit");
        all.arrive_and_wait();
        if (r.rank == 0) gpu_double::hold_call(0);
        all.arrive_and_wait();
        std::thread aborter;
        if (r.rank == 1)
            aborter = std::thread([&] {
                while (calls_of("ncclCommSplit") < before + 3) std::this_thread::yield();
                vescomm_comm_abort(part, "rank 1 gives up the part");
            });
        // Also on rank 2, which is in another part.
        expect_status(vescomm_gpu_comm_split(r.gpu, part, nullptr, &out), VESCOMM_ERROR_ABORTED,
                      "gives up the part");
        if (aborter.joinable()) aborter.join();
        EXPECT_EQ(vescomm_comm_free(part), VESCOMM_OK);
    });
    EXPECT_EQ(take_violations(), "");
    EXPECT_EQ(live_communicators(), 0);
}

}  // namespace
}  // namespace vescomm::internal
