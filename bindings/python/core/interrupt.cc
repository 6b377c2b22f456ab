// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Waits of the library handle the signals of Python, and end at the timeouts of Python's callers.
#include "interrupt.h"

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace vescomm::python {

namespace {

thread_local std::optional<WaitLimit::Clock::time_point> limit;

// Runs in a thread that waits without the GIL. An exception that a signal handler raises stays set
// in the thread; see raise_last().
int end_wait(void *) {
    if (limit && WaitLimit::Clock::now() >= *limit) return 1;
    const nb::gil_scoped_acquire acquired;
    // Does nothing in threads other than the main one.
    return PyErr_CheckSignals() != 0;
}

}  // namespace

WaitLimit::WaitLimit(std::chrono::duration<double> seconds) : outer_(limit) {
    // Beyond what a clock can count: no limit.
    constexpr std::chrono::hours years(24 * 365 * 10);
    if (seconds < years)
        limit = Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds);
}

WaitLimit::~WaitLimit() {
    limit = outer_;
}

void handle_signals_in_waits() {
    vescomm_set_interrupt(end_wait, nullptr);
}

}  // namespace vescomm::python
