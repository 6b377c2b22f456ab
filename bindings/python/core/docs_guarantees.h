// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The last lines of docstrings.
#pragma once

#define VESCOMM_LOCAL "\nCollective: no.  Blocking: no.  Threads: safe.  Since: 0.1"
#define VESCOMM_COLLECTIVE                                                                     \
    "\nCollective: yes, same order.  Blocking: yes, at most the timeout.  Threads: one at a\n" \
    "time per communicator.  Since: 0.1"
#define VESCOMM_ALONE \
    "\nCollective: no.  Blocking: no.  Threads: one at a time per communicator.  Since: 0.1"
