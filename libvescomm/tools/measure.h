// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vescomm {

// Measures memory and links with the ranks of the job that this process is one of, in a few
// seconds, tells on rank 0 how it goes, and writes the file of the machine: `name`, or where the
// library looks for it. Throws Error where a rank has no core of its own, since others would be
// measured with it.
void measure_machine(std::string name);

}  // namespace vescomm
