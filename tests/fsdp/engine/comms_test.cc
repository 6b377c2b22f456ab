// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Waits of the engine for a condition in memory that other ranks write.
#include "fsdp/engine/comms.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "fsdp/error.h"
#include "support/free_port.h"

namespace vescomm::fsdp {
namespace {

void run_two(double timeout_seconds, const std::function<void(Comms &, int rank)> &body) {
    const std::string address = internal::testing_support::free_address();
    const auto run = [&](int rank) {
        vescomm_comm_options_t options = vescomm_comm_options_init();
        options.timeout_seconds = timeout_seconds;
        Mesh mesh;
        mesh.ranks = mesh.shard_ranks = 2;
        Communicator made(rank, 2, address, "a secret of this test", &options);
        vescomm_comm_t *const parent = made.get();
        Comms comms(std::move(made), parent, mesh);
        body(comms, rank);
    };
    const std::jthread other(run, 1);
    run(0);
}

TEST(WaitUntil, ReturnsWhenTheConditionIsTrue) {
    std::atomic<int> arrived = 0;
    run_two(60, [&](Comms &comms, int) {
        ++arrived;
        comms.wait_until([&] { return arrived == 2; },
                         []() -> std::string { throw std::logic_error("it is not late"); });
    });
}

TEST(WaitUntil, EndsAtTheTimeout) {
    std::atomic<int> ended = 0;
    // Also the limit for the creation of the communicators, on a machine under load.
    run_two(3, [&](Comms &comms, int) {
        try {
            comms.wait_until([] { return false; }, [] { return "rank 7 is late"; });
            ADD_FAILURE() << "the condition is false";
        } catch (const Failure &failure) {
            EXPECT_EQ(failure.status, VESCOMM_ERROR_TIMEOUT);
            EXPECT_STREQ(failure.what(), "rank 7 is late");
        }
        ++ended;
    });
    EXPECT_EQ(ended, 2);
}

// Ranks are threads: only the threads that set this end their waits.
thread_local bool impatient = false;

TEST(WaitUntil, EndsWhenTheProgramInterruptsIt) {
    check(vescomm_set_interrupt([](void *) { return impatient ? 1 : 0; }, nullptr));
    // The timeout is far above the duration of the test.
    run_two(60, [&](Comms &comms, int rank) {
        if (rank == 1) return;
        impatient = true;
        try {
            comms.wait_until([] { return false; }, [] { return "it was not interrupted"; });
            ADD_FAILURE() << "the condition is false";
        } catch (const Failure &failure) {
            EXPECT_EQ(failure.status, VESCOMM_ERROR_ABORTED);
            EXPECT_STREQ(failure.what(), "the function of vescomm_set_interrupt() ended the wait");
        }
        impatient = false;
        comms.abort("the test is over");
    });
    check(vescomm_set_interrupt(nullptr, nullptr));
}

TEST(WaitUntil, EndsWhenAnotherRankAborts) {
    run_two(60, [&](Comms &comms, int rank) {
        if (rank == 1) return comms.abort("rank 1 gives up");
        EXPECT_THROW(comms.wait_until([] { return false; }, [] { return ""; }), Error);
    });
}

}  // namespace
}  // namespace vescomm::fsdp
