// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The other ranks get the reason when a part of a collective call fails on one rank alone. Without
// it the destructor of a communicator aborts them, and does not know the reason.
#pragma once

#include <new>
#include <utility>

#include "fsdp/engine/comms.h"

namespace vescomm::fsdp {

inline void abort_with(const Communicator &comm, const char *reason) noexcept {
    if (comm.get() != nullptr) vescomm_comm_abort(comm.get(), reason);
}
inline void abort_with(Comms &comms, const char *reason) noexcept {
    comms.abort(reason);
}

// Returns what the body returns. `comms`: a Communicator, or the Comms of an engine.
template <typename Aborted, typename Body>
decltype(auto) or_abort(Aborted &comms, Body &&body) {
    try {
        return std::forward<Body>(body)();
    } catch (const std::bad_alloc &) {
        abort_with(comms, "it is out of memory");
        throw;
    } catch (const std::exception &error) {
        abort_with(comms, error.what());
        throw;
    }
}

}  // namespace vescomm::fsdp
