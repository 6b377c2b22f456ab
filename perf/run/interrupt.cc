// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "perf/run/interrupt.h"

#include <signal.h>

#include "perf/run/exit_codes.h"

namespace vescomm::perf {
namespace {

volatile sig_atomic_t interrupted = 0;

}  // namespace

void catch_interrupts() {
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    // No SA_RESTART, so that waits return.
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
}

void check_interrupt() {
    if (interrupted != 0) throw Failure(ExitCode::interrupted, "interrupted");
}

}  // namespace vescomm::perf
