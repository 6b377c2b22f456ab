// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// What the coordinator and a worker say to each other: one line of JSON for each command, one for
// each answer.
//
//     hello                         -> the worker's version, rank
//     prepare CASE                  -> costs, or that there is no such operation
//     run TURN                      -> a time for each iteration
//     verify                        -> wrong elements in the result of the last iteration
//     end                           -> nothing
//
// Between commands a worker sleeps in a blocking read, so that it takes nothing from the others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perf/case/case.h"
#include "perf/case/pattern.h"
#include "perf/worker/implementation.h"

namespace vescomm::perf {

// A few iterations in a row.
struct Turn {
    int warm_up = 0;  // iterations before those that count
    int iterations = 1;
    int operations = 1;  // in each iteration, one after another
    std::uint64_t round = 0;  // of the first iteration; no two iterations of a case share one
    double skew_us = 0;  // so much later than the others
    int late_rank = 0;  // comes this rank
    double compute_us = 0;  // so much work lies between start() and wait()
};

struct Command {
    std::string name;
    Case what;  // of prepare
    Turn turn;  // of run
};

struct Answer {
    std::string error;  // not empty: the worker failed
    std::string unsupported;  // not empty: there is no such operation
    std::string version;  // of hello
    int rank = -1;
    int node = 0;  // of hello, where the implementation knows
    Costs costs;  // of prepare
    std::vector<double> times_us;  // of run, each from the arrival of the last rank
    std::vector<double> compute_us;  // of run, if there is such work: how long it took alone
    double start_us = -1;  // of run: median time until start() came back, in the warm-up
    Verdict verdict;  // of verify
};

std::string to_line(const Command &command);
std::string to_line(const Answer &answer);
// Throw std::runtime_error.
Command command_of(const std::string &line);
Answer answer_of(const std::string &line);

}  // namespace vescomm::perf
