// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Waits of the library handle the signals of Python, and end at the timeouts of Python's callers.
#include "interrupt.h"

#include <nanobind/nanobind.h>
#include <pthread.h>

#include <atomic>
#include <optional>
#include <utility>

#include "gil.h"

namespace nb = nanobind;

namespace vescomm::python {

namespace {

thread_local std::optional<WaitLimit::Clock::time_point> limit;

// The thread that runs signal handlers: the main thread of Python, or the one that has forked.
std::atomic<pthread_t> main_thread;

// Runs in a thread that waits without the GIL. An exception that a signal handler raises stays set
// in the thread; see raise_last().
int end_wait(void *) {
    if (limit && WaitLimit::Clock::now() >= *limit) return 1;
    if (pthread_equal(pthread_self(), main_thread) == 0) return 0;
    const GilTaken taken;
    // The limit is not one of the waits of a handler.
    const auto own_limit = std::exchange(limit, std::nullopt);
    const bool raised = PyErr_CheckSignals() != 0;
    limit = own_limit;
    return raised;
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
    const nb::object thread = nb::module_::import_("threading").attr("main_thread")();
    main_thread = nb::cast<pthread_t>(thread.attr("ident"));
    pthread_atfork(nullptr, nullptr, [] { main_thread = pthread_self(); });
    vescomm_set_interrupt(end_wait, nullptr);
}

}  // namespace vescomm::python
