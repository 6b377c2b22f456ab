// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Handles and fork(). A child process has a copy of every handle of its parent, but not the threads
// of the handle, and it shares sockets, event sets and memory with the parent: operations on them
// would affect the parent. So a handle belongs to the process that made it. In a child, every call
// on the handle is refused, including the call that frees it, and changes nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace vescomm::internal {

// Number of forks between the first process that made a handle and this process.
extern std::atomic<std::uint32_t> forks;

// Base class of the opaque types of vescomm.h, except those that are plain values.
class Handle {
public:
    // Throws std::bad_alloc if the fork handler cannot be registered.
    Handle();

    // True if the handle was made by a process from which this one was forked. Costs one load and a
    // comparison, because calls of a microsecond use it.
    bool inherited() const noexcept { return made_after_ != forks.load(std::memory_order_relaxed); }

private:
    std::uint32_t made_after_;  // value of `forks` when the handle was made
};

}  // namespace vescomm::internal
