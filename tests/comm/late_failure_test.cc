// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A rank fails after its part of a call is done. The call completes on the other ranks of the node,
// although they learn of the failure before they look at the data.
#include <thread>

#include "support/array_calls.h"

namespace vescomm::internal::testing_support {
namespace {

// Rank 0 completes the sum and breaks the communicator. The others have started the sum, and look
// at it when they have received the failure.
void expect_completion(TestSetup setup, std::size_t elements) {
    SCOPED_TRACE(name_of(setup) + ", " + std::to_string(elements));
    setup.config.progress = "inline";
    run_array_ranks(setup, [&](vescomm_comm_t *comm) {
        expect_in_step(comm);
        const auto ranks = static_cast<float>(comm->value->ranks());
        Floats data(elements, 1);
        if (comm->value->rank() == 0) {
            check(sum(comm, data));
            check(vescomm_comm_abort(comm, "the disk is full"));
        } else {
            vescomm_request_t *request = nullptr;
            check(sum(comm, data, &request));
            while (!comm->value->failure().broken()) std::this_thread::yield();
            check(vescomm_request_wait(request));
            vescomm_request_free(request);
        }
        EXPECT_EQ(data, Floats(elements, ranks));
        EXPECT_EQ(sum(comm, data), VESCOMM_ERROR_ABORTED);
    });
}

TEST(LateFailure, LeavesASumComplete) {
    for (const std::size_t elements : {10, 3000}) {
        expect_completion(two, elements);
        expect_completion(three, elements);
    }
}

}  // namespace
}  // namespace vescomm::internal::testing_support
