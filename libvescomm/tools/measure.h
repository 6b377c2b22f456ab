// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vescomm::internal {

// Measures memory and links with all ranks of the job of this process, in a few seconds. Rank 0
// prints the results and writes the machine file: `name`, or if that is empty the file that the
// library reads by default. Throws Error if ranks share cores, which would disturb the measurement.
void measure_machine(std::string name);

}  // namespace vescomm::internal
