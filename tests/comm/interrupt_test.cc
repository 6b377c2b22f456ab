// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// vescomm_set_interrupt(): waits that the program ends early.
#include <atomic>

#include "support/array_calls.h"
#include "support/free_port.h"

namespace vescomm::internal::testing_support {
namespace {

// Ranks are threads: only the threads that set this end their waits.
thread_local bool impatient = false;

// Ends the waits of impatient threads as long as it exists.
class Interrupts {
public:
    Interrupts() {
        check(vescomm_set_interrupt(
            [](void *context) {
                if (!impatient) return 0;
                ++static_cast<Interrupts *>(context)->count_;
                return 1;
            },
            this));
    }
    ~Interrupts() { check(vescomm_set_interrupt(nullptr, nullptr)); }

    void await() const { count_.wait(0); }
    void notify() { count_.notify_all(); }

private:
    std::atomic<int> count_{0};
};

class Interrupt : public ::testing::TestWithParam<TestSetup> {};

TEST_P(Interrupt, LeavesARequestRunning) {
    Interrupts interrupts;
    run_array_ranks(GetParam(), [&](vescomm_comm_t *comm) {
        Floats data(3000, 1);
        vescomm_request_t *request = nullptr;
        if (comm->value->rank() == 0) {
            check(sum(comm, data, &request));
            impatient = true;
            EXPECT_EQ(vescomm_request_wait(request), VESCOMM_IN_PROGRESS);
            EXPECT_EQ(vescomm_request_wait(request), VESCOMM_IN_PROGRESS);
            impatient = false;
            interrupts.notify();
        } else {
            interrupts.await();
            check(sum(comm, data, &request));
        }
        EXPECT_EQ(vescomm_request_wait(request), VESCOMM_OK) << vescomm_get_last_error();
        EXPECT_EQ(data, Floats(3000, static_cast<float>(comm->value->ranks())));
        check(vescomm_request_free(request));
        expect_in_step(comm);
    });
}

// A program that waits again and again waits no longer than one that is not interrupted.
TEST_P(Interrupt, WaitsForOneRunShareTheTimeout) {
    Interrupts interrupts;
    run_array_ranks(hurried(GetParam()), [&](vescomm_comm_t *comm) {
        Floats data(3000, 1);
        if (comm->value->rank() > 0) {
            while (!comm->value->failure().broken()) vescomm_comm_progress(comm);
            return;
        }
        vescomm_request_t *request = nullptr;
        check(sum(comm, data, &request));
        impatient = true;
        int waits = 0;
        vescomm_status_t status = VESCOMM_IN_PROGRESS;
        for (; status == VESCOMM_IN_PROGRESS; ++waits) status = vescomm_request_wait(request);
        impatient = false;
        EXPECT_EQ(status, VESCOMM_ERROR_TIMEOUT) << vescomm_get_last_error();
        EXPECT_GT(waits, 2);
        check(vescomm_request_free(request));
    });
}

TEST_P(Interrupt, BreaksTheCommunicatorOfABlockingCall) {
    Interrupts interrupts;
    run_array_ranks(GetParam(), [&](vescomm_comm_t *comm) {
        Floats data(3000, 1);
        if (comm->value->rank() == 0) {
            impatient = true;
            EXPECT_EQ(sum(comm, data), VESCOMM_ERROR_ABORTED);
            impatient = false;
            interrupts.notify();
        } else {
            interrupts.await();
            EXPECT_EQ(sum(comm, data), VESCOMM_ERROR_ABORTED);
        }
        EXPECT_NE(std::string(vescomm_get_last_error())
                      .find("rank 0 was interrupted in all_reduce of 3000 f32"),
                  std::string::npos)
            << vescomm_get_last_error();
    });
}

TEST_P(Interrupt, EndsACollectiveCreation) {
    Interrupts interrupts;
    run_array_ranks(GetParam(), [&](vescomm_comm_t *comm) {
        vescomm_comm_t *other = nullptr;
        if (comm->value->rank() == 0) {
            impatient = true;
            EXPECT_EQ(vescomm_comm_dup(comm, nullptr, &other), VESCOMM_ERROR_ABORTED);
            impatient = false;
            interrupts.notify();
        } else {
            interrupts.await();
            EXPECT_EQ(vescomm_comm_dup(comm, nullptr, &other), VESCOMM_ERROR_ABORTED);
        }
        EXPECT_NE(std::string(vescomm_get_last_error()).find("rank 0 was interrupted in"),
                  std::string::npos)
            << vescomm_get_last_error();
    });
}

// The other ranks wait in another call than the rank that is interrupted.
TEST_P(Interrupt, EndsTheWaitsOfRanksThatHaveNotFinalized) {
    Interrupts interrupts;
    run_array_ranks(GetParam(), [&](vescomm_comm_t *comm) {
        if (comm->value->rank() == 0) {
            impatient = true;
            EXPECT_EQ(vescomm_comm_finalize(comm), VESCOMM_ERROR_ABORTED);
            impatient = false;
            interrupts.notify();
        } else {
            interrupts.await();
            EXPECT_EQ(vescomm_barrier(comm), VESCOMM_ERROR_ABORTED);
        }
        EXPECT_NE(std::string(vescomm_get_last_error())
                      .find("rank 0 was interrupted in finalizing the communicator"),
                  std::string::npos)
            << vescomm_get_last_error();
    });
}

INSTANTIATE_TEST_SUITE_P(Everywhere, Interrupt,
                         ::testing::Values(two, three, TestSetup{Kind::loopback, {0, 1, 2}}),
                         [](const auto &info) { return name_of(info.param); });

TEST(InterruptedConnect, NamesTheWait) {
    Interrupts interrupts;
    impatient = true;
    vescomm_comm_t *comm = nullptr;
    // Rank 0 listens, and no other rank exists.
    EXPECT_EQ(vescomm_comm_create(0, 2, free_address().c_str(), "a secret", nullptr, &comm),
              VESCOMM_ERROR_ABORTED);
    EXPECT_NE(std::string(vescomm_get_last_error()).find("rank 0 was interrupted after"),
              std::string::npos)
        << vescomm_get_last_error();
    impatient = false;
}

}  // namespace
}  // namespace vescomm::internal::testing_support
