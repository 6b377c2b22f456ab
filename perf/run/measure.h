// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "perf/run/samples.h"
#include "perf/run/team.h"

namespace vescomm::perf {

// Reports progress: the name of the implementation that runs next, and the round, counted from 1.
using Watch = std::function<void(const std::string &name, int round)>;

// Measures one case with every team in turns. Each round gives each team a few iterations and
// begins with the next team. Samples are in the order of the teams.
//
//     round 1:  vescomm  limit    mpi
//     round 2:  limit    mpi      vescomm
//     round 3:  mpi      vescomm  limit      ...
//
// Changes of the machine's speed thus affect all teams. A team that fails is removed from `teams`,
// and its samples say why. If it is the first team, the failure is thrown.
std::vector<Samples> measure(const Case &what, std::vector<std::unique_ptr<Team>> &teams,
                             const Options &options, const Watch &watch);

}  // namespace vescomm::perf
