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

// Measures everything with these teams, the first of which the others are compared with; prints
// rows as they are done, and writes the file of results.
ExitCode coordinate(const Options &options, const std::vector<Case> &cases,
                    std::vector<std::unique_ptr<Team>> teams, Run run);

// Ranks on this machine: starts a team for each implementation, then coordinates.
ExitCode coordinate_here(const Options &options);

// As a rank that a launcher started.
ExitCode take_part(const Options &options);

}  // namespace vescomm::perf
