// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank frees its communicator while other ranks wait for it, or while its requests are running.
#include <array>
#include <chrono>
#include <future>

#include "support/array_calls.h"

namespace vescomm::internal::testing_support {
namespace {

std::vector<TestSetup> setups() {
    std::vector<TestSetup> setups = {
        {Kind::node, {0, 0, 0}}, {Kind::loopback, {0, 0, 1}}, {Kind::loopback, {0, 1, 2}}};
#if VESCOMM_HAVE_UCX
    setups.push_back({Kind::ucx, {0, 1, 1}});
#endif
    return setups;
}

class Leaving : public ::testing::TestWithParam<TestSetup> {};

TEST_P(Leaving, FailsTheCallsThatWaitForTheRank) {
    TestSetup setup = GetParam();
    setup.config.silence_seconds = 1;
    run_array_ranks(setup, [](vescomm_comm_t *comm) {
        expect_in_step(comm);
        if (comm->value->rank() == 2) return comm->value->leave();
        Floats data(3000, 1);
        // The error comes long before the timeout, which would give another status.
        EXPECT_EQ(sum(comm, data), VESCOMM_ERROR_MISMATCH) << vescomm_get_last_error();
        const std::string why = vescomm_get_last_error();
        EXPECT_NE(why.find("all_reduce of 3000 f32"), std::string::npos) << why;
        EXPECT_NE(why.find("rank 2, which has finalized its communicator"), std::string::npos)
            << why;
    });
}

// The network may deliver bytes late that a rank sent before it left.
TEST(LeavingAnotherNode, IsNoErrorForAsLongAsARankMayBeSilent) {
    TestSetup setup{Kind::loopback, {0, 0, 1}};
    setup.config.silence_seconds = 4;
    run_array_ranks(setup, [](vescomm_comm_t *comm) {
        expect_in_step(comm);
        if (comm->value->rank() == 2) return comm->value->leave();
        Floats data(3000, 1);
        const auto begin = Clock::now();
        EXPECT_EQ(sum(comm, data), VESCOMM_ERROR_MISMATCH) << vescomm_get_last_error();
        EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(3900));
    });
}

// Rank 2 forwards the block of rank 0 to rank 3, and computes meanwhile: rank 0 has nothing more to
// do.
TEST(LeavingAnotherNode, IsNoErrorForASenderWhoseBlockIsForwarded) {
    TestSetup setup{Kind::loopback, {0, 0, 1, 1}};
    setup.config.silence_seconds = 1;
    setup.config.progress = "inline";
    std::promise<void> started, failed;
    const std::shared_future<void> begun = started.get_future().share();
    std::future<void> failure = failed.get_future();
    run_array_ranks(setup, [&](vescomm_comm_t *comm) {
        const int rank = comm->value->rank();
        expect_in_step(comm);
        const std::array<std::int64_t, 4> counts{10, 10, 10, 10};
        const Floats mine(40, static_cast<float>(rank));
        Floats all(40);
        if (rank < 2) begun.wait();
        vescomm_request_t *request = nullptr;
        check(vescomm_all_to_all_v(comm, mine.data(), counts.data(), nullptr, all.data(),
                                   counts.data(), nullptr, VESCOMM_F32, nullptr, nullptr,
                                   &request));
        if (rank == 2) {
            started.set_value();
            // A wait for a rank that has left ends after some seconds.
            EXPECT_EQ(failure.wait_for(std::chrono::seconds(7)), std::future_status::timeout);
        }
        const vescomm_status_t status = vescomm_request_wait(request);
        EXPECT_EQ(status, VESCOMM_OK) << vescomm_get_last_error();
        if (rank == 3 && status != VESCOMM_OK) failed.set_value();
        vescomm_request_free(request);
        for (int peer = 0; peer < 4; ++peer)
            EXPECT_EQ(all[static_cast<std::size_t>(10 * peer)], static_cast<float>(peer));
        if (rank < 2) comm->value->leave();
    });
}

// A rank leaves with requests that it has started and not waited for.
TEST_P(Leaving, CompletesRunningRequests) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        Floats data(3000, 1), more(3000, 2);
        vescomm_request_t *first = nullptr, *second = nullptr;
        check(sum(comm, data, &first));
        check(sum(comm, more, &second));
        if (comm->value->rank() == 1) {
            comm->value->leave();
            EXPECT_EQ(more, Floats(3000, 6));
        }
        check(vescomm_request_wait(first));
        check(vescomm_request_wait(second));
        EXPECT_EQ(data, Floats(3000, 3));
        check(vescomm_request_free(first));
        check(vescomm_request_free(second));
    });
}

TEST_P(Leaving, FinalizeReturnsWhenEveryRankHasCalledIt) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        Floats data(3000, 1);
        vescomm_request_t *request = nullptr;
        check(sum(comm, data, &request));
        check(vescomm_comm_finalize(comm));
        EXPECT_EQ(data, Floats(3000, 3));
        EXPECT_EQ(vescomm_request_test(request), VESCOMM_OK);
        EXPECT_REFUSED(vescomm_request_start(request, nullptr), "finalized");
        EXPECT_REFUSED(sum(comm, data), "finalized");
        check(vescomm_request_free(request));
        check(vescomm_comm_finalize(comm));
    });
}

TEST_P(Leaving, FinalizeNamesARankThatDoesNotCallIt) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        if (comm->value->rank() == 1) {
            // A barrier that nobody else calls, so that this rank waits for the error of the
            // others.
            EXPECT_LT(vescomm_barrier(comm), 0);
            return;
        }
        const vescomm_status_t status = vescomm_comm_finalize(comm);
        EXPECT_LT(status, 0);
        EXPECT_NE(std::string(vescomm_get_last_error()).find("rank 1"), std::string::npos)
            << vescomm_get_last_error();
    });
}

TEST_P(Leaving, FinalizeReturnsTheErrorOfABrokenCommunicator) {
    run_array_ranks(GetParam(), [](vescomm_comm_t *comm) {
        if (comm->value->rank() == 2) check(vescomm_comm_abort(comm, "the disk is full"));
        EXPECT_EQ(vescomm_comm_finalize(comm), VESCOMM_ERROR_ABORTED);
        EXPECT_EQ(vescomm_comm_finalize(comm), VESCOMM_ERROR_ABORTED) << "again";
        EXPECT_NE(std::string(vescomm_get_last_error()).find("the disk is full"), std::string::npos)
            << vescomm_get_last_error();
    });
}

INSTANTIATE_TEST_SUITE_P(Everywhere, Leaving, ::testing::ValuesIn(setups()),
                         [](const auto &info) { return name_of(info.param); });

}  // namespace
}  // namespace vescomm::internal::testing_support
