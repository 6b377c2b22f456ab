// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace vescomm {

// The cores on which this process may run, for the others of its node: a hexadecimal digit for each
// four, the first ones first.
std::string usable_cores();

// How many cores there are on which at least one of the processes may run; at least 1. What is no
// list of usable_cores() has none.
int count_cores(std::span<const std::string> usable);

}  // namespace vescomm
