// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Groups of calls on arrays: rejected calls in them, groups that are cut differently, and ends that
// do not come.
#include <barrier>

#include "base/thread_sanitizer.h"
#include "support/array_calls.h"

namespace vescomm::internal {
namespace {

using testing_support::check;
using testing_support::expect_in_step;
using testing_support::Floats;
using testing_support::hurried;
using testing_support::Kind;
using testing_support::run_array_ranks;
using testing_support::sum;
using testing_support::three;
using testing_support::two;

// The group is executed as one operation, and its calls have the same elements together.
TEST(ArrayGroups, ThatAreCutDifferentlyAreReported) {
#if VESCOMM_THREAD_SANITIZER
    GTEST_SKIP() << "until the mismatch is detected, ranks read staging memory that others write";
#endif
    using Cut = std::vector<std::int64_t>;
    const auto call = [](Collective collective, vescomm_comm_t *comm, const float *source,
                         float *output, std::int64_t count) {
        switch (collective) {
            case Collective::all_reduce:
                return vescomm_all_reduce(comm, source, output, count, VESCOMM_F32, VESCOMM_SUM,
                                          nullptr, nullptr, nullptr);
            case Collective::broadcast:
                return vescomm_broadcast(comm, output, count, VESCOMM_F32, 0, nullptr, nullptr,
                                         nullptr);
            case Collective::all_gather_v:
                return vescomm_all_gather(comm, source, output, count, VESCOMM_F32, nullptr,
                                          nullptr, nullptr);
            default:
                return vescomm_all_to_all(comm, source, output, count, VESCOMM_F32, nullptr,
                                          nullptr, nullptr);
        }
    };
    const std::pair<Cut, Cut> pairs[] = {
        {{7, 3}, {3, 7}}, {{7, 3}, {10}}, {{0, 10}, {10}}, {{4, 3, 3}, {7, 3}}};
    for (const auto &setup : {hurried(three), hurried({Kind::loopback, {0, 0, 1}})})
        for (const Collective collective : {Collective::all_reduce, Collective::broadcast,
                                            Collective::all_gather_v, Collective::all_to_all_v})
            for (const auto &[mine, others] : pairs) {
                SCOPED_TRACE(testing::Message()
                             << name_of(collective) << " of " << mine.size() << " and of "
                             << others.size() << " calls on " << name_of(setup));
                run_array_ranks(setup, [&, mine = mine, others = others](vescomm_comm_t *comm) {
                    const Floats source(400, 1);
                    Floats output(400, 0);
                    vescomm_status_t status = VESCOMM_OK;
                    for (int k = 0; k < 10 && status == VESCOMM_OK; ++k) {
                        check(vescomm_group_begin(comm));
                        std::size_t at = 0;
                        for (const std::int64_t count : comm->value->rank() == 2 ? others : mine) {
                            check(call(collective, comm, &source[at], &output[at], count));
                            at += 100;
                        }
                        status = vescomm_group_end(comm, nullptr);
                    }
                    EXPECT_EQ(status, VESCOMM_ERROR_MISMATCH);
                    EXPECT_NE(std::string(vescomm_get_last_error()).find("rank 2"),
                              std::string::npos)
                        << vescomm_get_last_error();
                });
            }
}

TEST(ArrayGroups, ContinueAfterARejectedCall) {
    run_array_ranks(three, [](vescomm_comm_t *comm) {
        Floats data(10, 1), other(10, 1);
        auto options = vescomm_call_options_init();
        options.algorithm = "magic";
        check(vescomm_group_begin(comm));
        check(sum(comm, data));
        EXPECT_REFUSED(sum(comm, other, nullptr, 99), "no op 99");
        EXPECT_REFUSED(vescomm_all_reduce(comm, other.data(), other.data(), -1, VESCOMM_F32,
                                          VESCOMM_SUM, nullptr, nullptr, nullptr),
                       "count is -1");
        EXPECT_REFUSED(
            vescomm_broadcast(comm, other.data(), 1, VESCOMM_F32, 7, nullptr, nullptr, nullptr),
            "root is 7");
        check(sum(comm, other));
        check(vescomm_group_end(comm, nullptr));
        EXPECT_EQ(data, Floats(10, 3));
        EXPECT_EQ(other, Floats(10, 3));
        // An error found when an algorithm is chosen ends the group without starting it.
        check(vescomm_group_begin(comm));
        check(sum(comm, data));
        check(vescomm_all_reduce(comm, other.data(), other.data(), 10, VESCOMM_F32, VESCOMM_SUM,
                                 &options, nullptr, nullptr));
        EXPECT_REFUSED(vescomm_group_end(comm, nullptr), "\"magic\" for all_reduce on arrays");
        EXPECT_REFUSED(vescomm_group_end(comm, nullptr), "no group has begun");
        EXPECT_EQ(data, Floats(10, 3));
        // A group may be empty.
        vescomm_request_t *request = nullptr;
        check(vescomm_group_begin(comm));
        check(vescomm_group_end(comm, &request));
        check(vescomm_request_wait(request));
        check(vescomm_request_start(request, nullptr));
        EXPECT_EQ(vescomm_request_test(request), VESCOMM_OK);
        check(vescomm_request_free(request));
        expect_in_step(comm);
    });
}

TEST(ArrayGroups, CannotBeRestartedWhileAPartRuns) {
    std::barrier meeting(2);
    run_array_ranks(two, [&](vescomm_comm_t *comm) {
        const bool root = comm->value->rank() == 0;
        Floats data(10, root ? 5 : 0), ones(10, 1);
        const auto make = [&] {
            vescomm_request_t *request = nullptr;
            check(vescomm_group_begin(comm));
            check(vescomm_broadcast(comm, data.data(), 10, VESCOMM_F32, 0, nullptr, nullptr,
                                    nullptr));
            check(sum(comm, ones));
            check(vescomm_group_end(comm, &request));
            return request;
        };
        vescomm_request_t *request = nullptr;
        if (root) {
            // The broadcast is complete at the root. The all_reduce waits for rank 1.
            request = make();
            EXPECT_EQ(vescomm_request_test(request), VESCOMM_IN_PROGRESS);
            EXPECT_REFUSED(vescomm_request_start(request, nullptr), "running already");
            EXPECT_REFUSED(vescomm_request_free(request), "still running");
        }
        meeting.arrive_and_wait();
        if (!root) request = make();
        check(vescomm_request_wait(request));
        EXPECT_EQ(data, Floats(10, 5));
        EXPECT_EQ(ones, Floats(10, 2));
        check(vescomm_request_start(request, nullptr));
        check(vescomm_request_wait(request));
        EXPECT_EQ(ones, Floats(10, 4));
        check(vescomm_request_free(request));
        expect_in_step(comm);
    });
}

TEST(ArrayGroups, ManyThousandCallsFormOneOperation) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        constexpr std::size_t calls = 20'000;
        std::vector<Floats> data(calls, Floats(3, 1));
        const std::uint64_t before = comm->value->counters().operations;
        check(vescomm_group_begin(comm));
        for (Floats &one : data) check(sum(comm, one));
        check(vescomm_group_end(comm, nullptr));
        EXPECT_EQ(comm->value->counters().operations, before + 1);
        for (const Floats &one : data) ASSERT_EQ(one, Floats(3, 2));
    });
}

TEST(ArrayGroups, WithoutAnEndHaveNoEffect) {
    run_array_ranks(two, [](vescomm_comm_t *comm) {
        Floats data(10, 1);
        check(vescomm_group_begin(comm));
        check(sum(comm, data));
        check(vescomm_barrier(comm));
        EXPECT_EQ(data, Floats(10, 1));
    });
}

}  // namespace
}  // namespace vescomm::internal
