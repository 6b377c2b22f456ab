// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A process ends at once after a call that broke its communicator. The other ranks get the reason,
// not only the news that the process has ended.
#include <string>

#include "system/forked_ranks.h"

namespace {

using namespace forked_ranks;

// Once is not enough: the process must end before the thread of its control plane runs.
constexpr int times = 20;

vescomm_comm_t *created(const Job &job, int rank) {
    vescomm_comm_t *comm = nullptr;
    require(job.create(rank, "", &comm), "create");
    return comm;
}

// Waits for a failure, and ends the process. The error has the status and the words.
void expect_failure(vescomm_comm_t *comm, vescomm_status_t status, const std::string &words) {
    vescomm_status_t got = VESCOMM_OK;
    while (got == VESCOMM_OK) got = vescomm_barrier(comm);
    const std::string why = vescomm_get_last_error();
    expect(got == status && why.find(words) != std::string::npos, words.c_str());
    require(vescomm_comm_free(comm), "free");
}

void run_aborted_by(int aborts, int per_node) {
    for (int i = 0; i < times && !testing::Test::HasFailure(); ++i) {
        const Job job{.ranks = 3, .per_node = per_node};
        run(job, [&](int rank) {
            vescomm_comm_t *comm = created(job, rank);
            if (rank == aborts) {
                require(vescomm_comm_abort(comm, "the disk is full"), "abort");
                _exit(0);
            }
            expect_failure(
                comm, VESCOMM_ERROR_ABORTED,
                "rank " + std::to_string(aborts) + " aborted the communicator: the disk is full");
        });
    }
}

TEST(ExitAfterAbort, OthersGetTheReason) {
    run_aborted_by(2, 3);
}

TEST(ExitAfterAbort, OthersGetTheReasonOfRank0) {
    run_aborted_by(0, 3);
}

TEST(ExitAfterAbort, OthersGetTheReasonOnTwoNodes) {
    run_aborted_by(2, 2);
}

// Rank 2 waits in a barrier for the others, and its wait is interrupted. It makes no call after it.
TEST(ExitAfterError, OthersGetTheReason) {
    for (int i = 0; i < times && !HasFailure(); ++i) {
        const Job job{.ranks = 3, .per_node = 3};
        run(job, [&](int rank) {
            vescomm_comm_t *comm = created(job, rank);
            if (rank == 2) {
                vescomm_set_interrupt([](void *) -> int32_t { return 1; }, nullptr);
                expect(vescomm_barrier(comm) == VESCOMM_ERROR_ABORTED, "the barrier of rank 2");
                _exit(0);
            }
            // The reason may arrive before the receive starts, or while it waits.
            vescomm_request_t *request = nullptr;
            float value = 0;
            vescomm_status_t status =
                vescomm_receive(comm, &value, 1, VESCOMM_F32, 2, nullptr, nullptr, &request);
            if (status == VESCOMM_OK) status = vescomm_request_wait(request);
            expect(status == VESCOMM_ERROR_ABORTED, "the receive");
            const std::string why = vescomm_get_last_error();
            expect(why.find("rank 2 was interrupted") != std::string::npos, "the reason");
            require(vescomm_request_free(request), "free");
            require(vescomm_comm_free(comm), "free");
        });
    }
}

// The communicator is freed, but another one keeps the connections of the process open.
TEST(ExitAfterFree, OthersGetTheReason) {
    for (int i = 0; i < times && !HasFailure(); ++i) {
        const Job job{.ranks = 3, .per_node = 3};
        run(job, [&](int rank) {
            vescomm_comm_t *comm = created(job, rank), *second = nullptr;
            require(job.create(rank, "second", &second), "create");
            if (rank == 2) {
                require(vescomm_comm_abort(comm, "the disk is full"), "abort");
                require(vescomm_comm_free(comm), "free");
                _exit(0);
            }
            expect_failure(comm, VESCOMM_ERROR_ABORTED, "the disk is full");
            expect_failure(second, VESCOMM_ERROR_PEER_FAILED, "rank 2");
        });
    }
}

}  // namespace
