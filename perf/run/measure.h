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

// Who is at it, for somebody who watches: an implementation's name, and the round from 1.
using Watch = std::function<void(const std::string &name, int round)>;

// Measures one case with every team, in turns: each round gives each team a few iterations, and
// begins with another team than the round before. Samples are in the order of the teams.
//
//     round 1:  vescomm  limit    mpi
//     round 2:  limit    mpi      vescomm
//     round 3:  mpi      vescomm  limit      ...
//
// What changes on the machine from one minute to the next so changes for all. A team that fails is
// taken out of `teams`, and its samples say why; if it is the first, the failure is thrown.
std::vector<Samples> measure(const Case &what, std::vector<std::unique_ptr<Team>> &teams,
                             const Options &options, const Watch &watch);

}  // namespace vescomm::perf
