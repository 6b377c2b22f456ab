// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank frees its communicator while other ranks wait for it, or while its requests are running.
#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <vector>

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

// Runs `body` on the ranks that stay, with an array for a sum, when rank 2 has left.
void without_rank_2(TestSetup setup, double silence_seconds,
                    const std::function<void(vescomm_comm_t *, Floats &)> &body) {
    setup.config.silence_seconds = silence_seconds;
    run_array_ranks(setup, [&body](vescomm_comm_t *comm) {
        expect_in_step(comm);
        if (comm->value->rank() == 2) return comm->value->leave();
        Floats data(3000, 1);
        body(comm, data);
    });
}

class Leaving : public ::testing::TestWithParam<TestSetup> {};

TEST_P(Leaving, FailsTheCallsThatWaitForTheRank) {
    without_rank_2(GetParam(), 1, [](vescomm_comm_t *comm, Floats &data) {
        // The error comes long before the timeout, which would give another status.
        EXPECT_EQ(sum(comm, data), VESCOMM_ERROR_MISMATCH) << vescomm_get_last_error();
        const std::string why = vescomm_get_last_error();
        EXPECT_NE(why.find("all_reduce of 3000 f32"), std::string::npos) << why;
        EXPECT_NE(why.find("rank 2, which has finalized its communicator"), std::string::npos)
            << why;
    });
}

// A program that tests a request in a loop gets the error too.
TEST_P(Leaving, FailsTheTestsOfRequestsThatWaitForTheRank) {
    without_rank_2(GetParam(), 1, [](vescomm_comm_t *comm, Floats &data) {
        vescomm_request_t *request = nullptr;
        check(sum(comm, data, &request));
        const auto limit = Clock::now() + std::chrono::seconds(60);
        vescomm_status_t status = VESCOMM_IN_PROGRESS;
        while (status == VESCOMM_IN_PROGRESS && Clock::now() < limit)
            status = vescomm_request_test(request);
        EXPECT_EQ(status, VESCOMM_ERROR_MISMATCH) << vescomm_get_last_error();
        vescomm_request_free(request);
    });
}

// The network may deliver bytes late that a rank sent before it left.
TEST(LeavingAnotherNode, IsNoErrorForAsLongAsARankMayBeSilent) {
    without_rank_2({Kind::loopback, {0, 0, 1}}, 4, [](vescomm_comm_t *comm, Floats &data) {
        const auto begin = Clock::now();
        EXPECT_EQ(sum(comm, data), VESCOMM_ERROR_MISMATCH) << vescomm_get_last_error();
        EXPECT_GE(Clock::now() - begin, std::chrono::milliseconds(3900));
    });
}

// An all_to_all_v of ranks on two nodes, in which rank 2 forwards the blocks of rank 0 for rank 3.
// Rank 2 moves nothing after its start before it waits. The others complete their parts: rank 3
// starts first and rank 2 next, so that the start of rank 2 sends all that ranks 0 and 1 need.
class Forwarded {
public:
    enum class End { leave, stay };
    // `end`: ranks 0 and 1 leave, or stay until rank 3 has ended its wait.
    explicit Forwarded(End end) : end_(end) {
        setup_.config.algorithm = "all_to_all_v=two_level";
        setup_.config.progress = "inline";
        setup_.config.silence_seconds = 1;
    }

    // Runs `rank_2` and `rank_3` on these ranks with their requests; the others wait for theirs,
    // and leave.
    using Body = std::function<void(vescomm_request_t *)>;
    void run(const Body &rank_2, const Body &rank_3) {
        run_array_ranks(setup_, [&](vescomm_comm_t *comm) {
            const int rank = comm->value->rank();
            if (rank == 2) started_[3].wait();
            if (rank < 2) started_[2].wait();
            const Floats data(40, static_cast<float>(rank));
            Floats result(40);
            const std::vector<std::int64_t> counts(4, 10);
            vescomm_request_t *request = nullptr;
            check(vescomm_all_to_all_v(comm, data.data(), counts.data(), nullptr, result.data(),
                                       counts.data(), nullptr, VESCOMM_F32, nullptr, nullptr,
                                       &request));
            started_[rank].count_down();
            if (rank == 2) rank_2(request);
            else if (rank == 3) rank_3(request);
            else EXPECT_EQ(vescomm_request_wait(request), VESCOMM_OK) << vescomm_get_last_error();
            done_.count_down();
            if (end_ == End::stay) done_.wait();
            vescomm_request_free(request);
            if (rank < 2) comm->value->leave();
        });
    }

    TestSetup &setup() { return setup_; }

private:
    End end_;
    TestSetup setup_{Kind::tcp, {0, 0, 1, 1}};
    std::latch started_[4] = {std::latch(1), std::latch(1), std::latch(1), std::latch(1)};
    std::latch done_{4};
};

TEST(LeavingASender, DoesNotEndTheWaitForItsForwardingRank) {
    std::promise<void> ended;
    Forwarded forwarded(Forwarded::End::leave);
    forwarded.run(
        [&](vescomm_request_t *request) {
            // A wait for a rank that has left would have failed by then.
            ended.get_future().wait_for(std::chrono::seconds(4));
            EXPECT_EQ(vescomm_request_wait(request), VESCOMM_OK) << vescomm_get_last_error();
        },
        [&](vescomm_request_t *request) {
            EXPECT_EQ(vescomm_request_wait(request), VESCOMM_OK) << vescomm_get_last_error();
            ended.set_value();
        });
}

TEST(LateForwardingRank, IsNamedWithoutTheSenderThatHasDoneItsPart) {
    Forwarded forwarded(Forwarded::End::stay);
    forwarded.setup().config.timeout_seconds = 1;
    forwarded.run([](vescomm_request_t *) {},
                  [](vescomm_request_t *request) {
                      EXPECT_EQ(vescomm_request_wait(request), VESCOMM_ERROR_TIMEOUT);
                      const std::string why = vescomm_get_last_error();
                      EXPECT_NE(why.find("waited 1 s for rank 2;"), std::string::npos) << why;
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
