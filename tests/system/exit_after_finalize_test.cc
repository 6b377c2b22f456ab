// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks end right after vescomm_comm_finalize(), without vescomm_comm_free(), as guide-c.md
// permits: none of the others gets an error.
#include "system/forked_ranks.h"

namespace {

using namespace forked_ranks;

TEST(ExitAfterFinalize, FailsNoOtherRank) {
    struct Shape {
        int ranks, per_node;
    };
    for (const auto &[ranks, per_node] :
         {Shape{2, 2}, Shape{4, 4}, Shape{8, 8}, Shape{4, 2}, Shape{3, 1}})
        for (int round = 0; round < 12 && !HasFailure(); ++round) {
            SCOPED_TRACE(testing::Message() << ranks << " ranks, " << per_node << " on a node");
            const Job job{ranks, per_node};
            run(job, [&](int rank) {
                vescomm_comm_t *comm = nullptr;
                require(job.create(rank, nullptr, &comm), "create");
                require(vescomm_barrier(comm), "barrier");
                require(vescomm_comm_finalize(comm), "finalize");
                // Some free it.
                if (round % 3 == 1 && rank != 0) vescomm_comm_free(comm);
            });
        }
}

}  // namespace
