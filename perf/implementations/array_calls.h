// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs a case as calls of vescomm's collectives on arrays, one call for each tensor.
#pragma once

#include <vector>

#include "perf/case/private_buffers.h"
#include "perf/worker/implementation.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::perf {

class ArrayCalls {
public:
    ArrayCalls() = default;
    // `registered`: in memory of vescomm_malloc(). Throws Unsupported.
    ArrayCalls(Communicator &comm, const Case &what, bool registered = false);

    std::byte *input() { return buffers_.input(); }
    std::byte *output() { return buffers_.output(); }

    // Makes the calls and returns when all are complete.
    void run();
    // Starts the calls as one request, which can be started again.
    void start(Request &request);

private:
    void call(const Part &part);

    Communicator *comm_ = nullptr;
    int rank_ = 0;
    Case what_;
    vescomm_type_t type_ = VESCOMM_F32;
    vescomm_op_t op_ = VESCOMM_SUM;
    std::int64_t bytes_ = 1;  // of an element
    std::vector<Part> parts_;
    std::vector<std::int64_t> counts_, offsets_;  // of the output of all_to_all_v
    PrivateBuffers buffers_;
};

}  // namespace vescomm::perf
