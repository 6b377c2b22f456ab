// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "gpu/device_ends.h"

#include <algorithm>
#include <new>
#include <string>

#include "observe/log.h"

namespace vescomm::internal {
namespace {

// Seconds within which NCCL and the work of a device end, unless the timeout is shorter.
constexpr double end_seconds = 10;

}  // namespace

Deadline end_limit(const Communicator &comm) {
    return Deadline::after(std::min<double>(comm.config().timeout_seconds, end_seconds));
}

void log_leak(const Communicator &comm, const char *what, const char *why) noexcept {
    try {
        log(LogLevel::warn, "gpu", comm.rank(), comm.ranks(),
            std::string("a device communicator leaks ") + what + " until the process ends: " + why);
    } catch (const std::bad_alloc &) {
        // The line is lost.
    }
}

}  // namespace vescomm::internal
