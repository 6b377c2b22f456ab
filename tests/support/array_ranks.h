// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Threads of this process that call the C API for arrays.
#pragma once

#include <barrier>
#include <stdexcept>

#include "api/handles.h"
#include "support/thread_ranks.h"

namespace vescomm::testing_support {

inline void check(vescomm_status_t status) {
    if (status != VESCOMM_OK) throw std::runtime_error(vescomm_last_error());
}

// Collective.
inline std::unique_ptr<vescomm_comm> handle_of(const std::shared_ptr<Communicator> &comm) {
    auto handle = std::make_unique<vescomm_comm>();
    handle->calls = Calls::create(comm);
    handle->value = comm;
    return handle;
}

// As run_ranks(). Nobody begins before everyone has a handle.
inline void run_array_ranks(const Stage &stage, const std::function<void(vescomm_comm_t *)> &body) {
    std::barrier meeting(stage.ranks());
    run_ranks(stage, [&](const std::shared_ptr<Communicator> &comm) {
        std::unique_ptr<vescomm_comm> handle;
        try {
            handle = handle_of(comm);
        } catch (...) {
            meeting.arrive_and_drop();
            throw;
        }
        meeting.arrive_and_wait();
        body(handle.get());
    });
}

}  // namespace vescomm::testing_support
