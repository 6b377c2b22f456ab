// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>

#include "vescomm/vescomm.h"

namespace vescomm::python {

// While it exists, waits of the calling thread end some 0.1 seconds after the given time at the
// latest: vescomm_request_wait() then returns VESCOMM_IN_PROGRESS.
class WaitLimit {
public:
    using Clock = std::chrono::steady_clock;

    explicit WaitLimit(std::chrono::duration<double> seconds);
    WaitLimit(const WaitLimit &) = delete;
    WaitLimit &operator=(const WaitLimit &) = delete;
    ~WaitLimit();

private:
    std::optional<Clock::time_point> outer_;  // limit of the calling thread before
};

// Called once, by the module: waits of the main thread run the signal handlers of Python.
void handle_signals_in_waits();

}  // namespace vescomm::python
