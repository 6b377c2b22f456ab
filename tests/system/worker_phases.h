// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

#include <vescomm/vescomm.hpp>

namespace system_test {

// Prints a line with the rank, and flushes it.
void say(int rank, const std::string &line);

// Repeats an operation until it fails. In some phases the victims stop after the setup.
void run_phase(const vescomm::Communicator &comm, const std::string &name,
               const std::set<int> &victims);

// The last rank makes another call than the others.
void run_mismatch(const vescomm::Communicator &comm, const std::string &kind);

}  // namespace system_test
