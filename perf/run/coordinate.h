// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "perf/run/exit_codes.h"
#include "perf/run/options.h"
#include "perf/run/table.h"
#include "perf/run/team.h"

namespace vescomm::perf {

// Measures all cases with the given teams and compares the others with the first. Prints each row
// when it is done, and writes the file of results.
ExitCode coordinate(const Options &options, const std::vector<Case> &cases,
                    std::vector<std::unique_ptr<Team>> teams, Run run);

// Starts a team of local processes for each implementation, then coordinates.
ExitCode coordinate_here(const Options &options);

// Runs as a rank that a launcher started.
ExitCode take_part(const Options &options);

}  // namespace vescomm::perf
