// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The other ranks get the reason when a part of a collective call fails on one rank alone. Without
// it the destructor of a communicator aborts them, and does not know the reason.
#pragma once

#include <exception>
#include <new>
#include <utility>

#include "fsdp/engine/comms.h"

namespace vescomm::fsdp {

inline const char *reason_of(const std::exception &error) {
    const bool no_memory = dynamic_cast<const std::bad_alloc *>(&error) != nullptr;
    return no_memory ? "it is out of memory" : error.what();
}

inline void abort_with(const Communicator &comm, const std::exception &error) noexcept {
    if (comm.get() != nullptr) vescomm_comm_abort(comm.get(), reason_of(error));
}
inline void abort_with(Comms &comms, const std::exception &error) noexcept {
    comms.abort(reason_of(error));
}

// Returns what the body returns. `comms`: a Communicator, or the Comms of an engine.
template <typename Aborted, typename Body>
decltype(auto) or_abort(Aborted &comms, Body &&body) {
    try {
        return std::forward<Body>(body)();
    } catch (const std::exception &error) {
        abort_with(comms, error);
        throw;
    }
}

}  // namespace vescomm::fsdp
