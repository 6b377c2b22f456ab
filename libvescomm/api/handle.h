// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Handles and fork(). A child has a copy of every handle of its parent, but neither the threads
// that stand behind it nor sockets, event sets and shared memory of its own: whatever it did to
// them would happen to the parent. So a handle belongs to the process that made it. In a child each
// call on it is refused, and freeing it, which is refused as well, leaves everything as it is.
#pragma once

#include <atomic>
#include <cstdint>

namespace vescomm {

// The forks that lie between the first process that made a handle and this one.
extern std::atomic<std::uint32_t> forks;

// The base of what stands behind the opaque types of vescomm.h, but not of plain values.
class Handle {
public:
    // Throws std::bad_alloc when forks cannot be counted.
    Handle();

    // Made by a process from which this one was forked. One load and a comparison: calls of a
    // microsecond ask.
    bool inherited() const noexcept { return made_after_ != forks.load(std::memory_order_relaxed); }

private:
    std::uint32_t made_after_;
};

}  // namespace vescomm
