// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vescomm::perf {

// Installs handlers for SIGINT, SIGTERM and SIGHUP. A signal then only makes the next wait throw,
// so that destructors clean up.
void catch_interrupts();

// Throws Failure if one of these signals was received.
void check_interrupt();

}  // namespace vescomm::perf
