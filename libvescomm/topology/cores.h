// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace vescomm::internal {

// The cores on which this process may run, as text for its local peers: one hexadecimal digit for
// each four cores, the lowest core numbers first.
std::string usable_cores();

// Number of cores on which at least one of the processes may run; at least 1. A text that is not
// from usable_cores() counts as no cores.
int count_cores(std::span<const std::string> usable);

}  // namespace vescomm::internal
