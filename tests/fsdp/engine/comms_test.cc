// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0

// Waits of the engine: for a condition in memory that other ranks write, and for requests.
#include "fsdp/engine/comms.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "fsdp/error.h"
#include "support/free_port.h"

namespace vescomm::fsdp {
namespace {

// Groups of 2 ranks shard a unit.
void run_ranks(int ranks, double timeout_seconds,
               const std::function<void(Comms &, int rank)> &body) {
    const std::string address = internal::testing_support::free_address();
    const auto run = [&](int rank) {
        vescomm_comm_options_t options = vescomm_comm_options_init();
        options.timeout_seconds = timeout_seconds;
        Mesh mesh;
        mesh.ranks = ranks;
        mesh.shard_ranks = 2;
        Communicator made(rank, ranks, address, "a secret of this test", &options);
        vescomm_comm_t *const parent = made.get();
        Comms comms(std::move(made), parent, mesh);
        body(comms, rank);
    };
    std::vector<std::jthread> others;
    for (int rank = 1; rank < ranks; ++rank) others.emplace_back(run, rank);
    run(0);
}

TEST(WaitUntil, ReturnsWhenTheConditionIsTrue) {
    std::atomic<int> arrived = 0;
    run_ranks(2, 60, [&](Comms &comms, int) {
        ++arrived;
        comms.wait_until([&] { return arrived == 2; },
                         []() -> std::string { throw std::logic_error("it is not late"); });
    });
}

TEST(WaitUntil, EndsAtTheTimeout) {
    std::atomic<int> ended = 0;
    // Also the limit for the creation of the communicators, on a machine under load.
    run_ranks(2, 3, [&](Comms &comms, int) {
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
    run_ranks(2, 60, [&](Comms &comms, int rank) {
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
    run_ranks(2, 60, [&](Comms &comms, int rank) {
        if (rank == 1) return comms.abort("rank 1 gives up");
        EXPECT_THROW(comms.wait_until([] { return false; }, [] { return ""; }), Failure);
    });
}

// Rank 3 of 4 breaks the communicator `broken`, while the others wait for a request of `waited`.
// Returns the error of rank 2.
using Choose = Communicator &(*)(Comms &);
std::string failure_of_wait(Choose broken, Choose waited) {
    std::string why;
    std::atomic<int> started = 0;
    run_ranks(4, 60, [&](Comms &comms, int rank) {
        if (rank == 3) {
            while (started < 3) std::this_thread::yield();
            vescomm_comm_abort(broken(comms).get(), "the reason");
        } else {
            Communicator &comm = waited(comms);
            const std::int64_t one = 1;
            std::vector<std::int64_t> all(comm.ranks());
            vescomm_request_t *request = nullptr;
            try {
                check(vescomm_all_gather(comm.get(), &one, all.data(), 1, VESCOMM_I64, nullptr,
                                         nullptr, &request));
                ++started;
                comms.wait(comm, request);
            } catch (const Failure &failure) {
                EXPECT_EQ(failure.status, VESCOMM_ERROR_ABORTED);
                if (rank == 2) why = failure.what();
            }
            if (rank == 2) comms.abort("the test is over");
            vescomm_request_free(request);
        }
        // Communicators end when rank 2 has seen the failure.
        while (vescomm_comm_progress(comms.world().get()) == VESCOMM_OK) std::this_thread::yield();
    });
    return why;
}

Communicator &world_of(Comms &comms) {
    return comms.world();
}
Communicator &shard_group_of(Comms &comms) {
    return comms.shard();
}

TEST(Wait, SaysWhichRanksTheFailedGroupHas) {
    const std::string group = "(rank 0 of the shard group is rank 2)";
    for (const Choose waited : {world_of, shard_group_of}) {
        const std::string why = failure_of_wait(shard_group_of, waited);
        EXPECT_NE(why.find("the reason"), std::string::npos) << why;
        EXPECT_NE(why.find(group), std::string::npos) << why;
    }
    const std::string why = failure_of_wait(world_of, shard_group_of);
    EXPECT_NE(why.find("the reason"), std::string::npos) << why;
    EXPECT_EQ(why.find(group), std::string::npos) << why;
}

}  // namespace
}  // namespace vescomm::fsdp
