// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A case as calls of the library's collectives on arrays, one for each tensor.
#pragma once

#include <vector>

#include "perf/case/private_buffers.h"
#include "perf/worker/implementation.h"
#include "vescomm/vescomm.hpp"

namespace vescomm::perf {

class ArrayCalls {
public:
    ArrayCalls() = default;
    // Throws Unsupported.
    ArrayCalls(Communicator &comm, const Case &what);

    std::byte *input() { return buffers_.input(); }
    std::byte *output() { return buffers_.output(); }

    // Calls them, and returns when all is complete.
    void run();
    // Starts them. The request can be started again.
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
    std::vector<std::int64_t> counts_, offsets_;  // all_to_all_v: of the output
    PrivateBuffers buffers_;
};

}  // namespace vescomm::perf
