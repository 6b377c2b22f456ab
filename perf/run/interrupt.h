// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vescomm::perf {

// From now on SIGINT, SIGTERM and SIGHUP only make the next wait throw, so that everything that was
// started or made is taken away again.
void catch_interrupts();

// Throws Failure if one has come.
void check_interrupt();

}  // namespace vescomm::perf
