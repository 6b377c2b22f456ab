// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

#include <vescomm/vescomm.hpp>

namespace system_test {

// Prints a line of a rank, at once.
void say(int rank, const std::string &line);

// Repeats one thing until it fails. Victims stand still once everything is set up.
void run_phase(const vescomm::Communicator &comm, const std::string &name,
               const std::set<int> &victims);

// The last rank calls something else than the others.
void run_mismatch(const vescomm::Communicator &comm, const std::string &kind);

}  // namespace system_test
