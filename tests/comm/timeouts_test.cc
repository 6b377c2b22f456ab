// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank does not make a call that the others make: the error of every other rank names this rank
// and no other, also where ranks wait for ranks that wait themselves.
#include <latch>

#include "support/array_calls.h"

namespace vescomm::internal::testing_support {
namespace {

using Call = vescomm_status_t (*)(vescomm_comm_t *);

vescomm_status_t sum_of_ten(vescomm_comm_t *comm) {
    Floats data(10, 1);
    return sum(comm, data);
}

// Calls broadcast until it fails: the root does not wait for the others, and is calls ahead.
vescomm_status_t broadcasts(vescomm_comm_t *comm) {
    Floats data(3000, 1);
    vescomm_status_t status = VESCOMM_OK;
    while (status == VESCOMM_OK)
        status = vescomm_broadcast(comm, data.data(), 3000, VESCOMM_F32, comm->value->ranks() - 1,
                                   nullptr, nullptr, nullptr);
    return status;
}

TestSetup on_nodes(Kind kind, std::vector<int> node_of) {
    TestSetup setup = hurried({kind, std::move(node_of)});
    setup.config.algorithm = "all_reduce=doubling";
    return setup;
}

void expect_only_the_missing_rank(const TestSetup &setup, Call call) {
    for (int missing = 0; missing < setup.ranks(); ++missing) {
        SCOPED_TRACE(name_of(setup) + ", missing " + std::to_string(missing));
        std::latch failed(setup.ranks() - 1);
        run_array_ranks(setup, [&](vescomm_comm_t *comm) {
            expect_in_step(comm);
            if (comm->value->rank() == missing) return failed.wait();
            EXPECT_EQ(call(comm), VESCOMM_ERROR_TIMEOUT);
            const std::string why = vescomm_get_last_error();
            EXPECT_NE(why.find("waited 1 s for rank " + std::to_string(missing) + ";"),
                      std::string::npos)
                << why;
            failed.count_down();
        });
    }
}

TEST(Timeout, OfABarrierNamesOnlyTheMissingRank) {
    expect_only_the_missing_rank(on_nodes(Kind::tcp, {0, 1, 2, 3, 4}), vescomm_barrier);
    expect_only_the_missing_rank(on_nodes(Kind::tcp, {0, 1, 2, 3, 4, 5, 6, 7}), vescomm_barrier);
}

TEST(Timeout, OfASumNamesOnlyTheMissingRank) {
    expect_only_the_missing_rank(on_nodes(Kind::tcp, {0, 1, 2, 3, 4}), sum_of_ten);
    expect_only_the_missing_rank(on_nodes(Kind::tcp, {0, 1, 2, 3, 4, 5, 6, 7}), sum_of_ten);
}

TEST(Timeout, NamesOnlyTheMissingRankWhereNodesHaveSeveralRanks) {
    expect_only_the_missing_rank(on_nodes(Kind::tcp, {0, 0, 1, 1, 2, 2}), vescomm_barrier);
}

// A rank that is ahead waits for one that waits in an earlier call.
TEST(Timeout, NamesOnlyTheMissingRankWhereOthersAreAhead) {
    expect_only_the_missing_rank(on_nodes(Kind::tcp, {0, 0, 1}), broadcasts);
    expect_only_the_missing_rank(on_nodes(Kind::tcp, {0, 1, 1, 2}), broadcasts);
}

// Without a progress thread the missing rank does not answer.
TEST(Timeout, NamesARankThatDoesNotAnswer) {
    expect_only_the_missing_rank(on_nodes(Kind::loopback, {0, 1, 2, 3, 4}), vescomm_barrier);
}

}  // namespace
}  // namespace vescomm::internal::testing_support
