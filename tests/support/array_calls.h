// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Helpers for tests of calls on arrays.
#pragma once

#include <string>
#include <vector>

#include "support/array_ranks.h"

namespace vescomm::internal::testing_support {

using Floats = std::vector<float>;

inline const TestSetup two{Kind::node, {0, 0}};
inline const TestSetup three{Kind::node, {0, 0, 0}};

inline vescomm_status_t sum(vescomm_comm_t *comm, Floats &data,
                            vescomm_request_t **request = nullptr, vescomm_op_t op = VESCOMM_SUM) {
    return vescomm_all_reduce(comm, data.data(), data.data(),
                              static_cast<std::int64_t>(data.size()), VESCOMM_F32, op, nullptr,
                              nullptr, request);
}

// Checks that all ranks are at the same operation: an all_reduce gives the right sum.
inline void expect_in_step(vescomm_comm_t *comm) {
    Floats ones(10, 1);
    check(sum(comm, ones));
    EXPECT_EQ(ones, Floats(10, static_cast<float>(comm->value->ranks())));
}

}  // namespace vescomm::internal::testing_support

#define EXPECT_REFUSED(call, text)                                                     \
    do {                                                                               \
        EXPECT_EQ(call, VESCOMM_ERROR_INVALID_ARGUMENT) << vescomm_get_last_error();   \
        EXPECT_NE(std::string(vescomm_get_last_error()).find(text), std::string::npos) \
            << vescomm_get_last_error();                                               \
    } while (false)
