// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Messages between the coordinator and a worker: one line of JSON for each command and each answer.
//
//     hello                         -> the worker's version and rank
//     prepare CASE                  -> costs, or that the operation is unsupported
//     run TURN                      -> a time for each iteration
//     verify                        -> wrong elements in the result of the last iteration
//     end                           -> nothing
//
// Between commands a worker sleeps in a blocking read, so that it does not disturb other workers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perf/case/case.h"
#include "perf/case/pattern.h"
#include "perf/worker/implementation.h"

namespace vescomm::perf {

// Consecutive iterations of one implementation.
struct Turn {
    int warm_up = 0;  // untimed iterations before the timed ones
    int iterations = 1;  // timed
    int operations = 1;  // in each iteration, one after another
    std::uint64_t round = 0;  // number of the first iteration, unique within a case
    bool keep_source = false;  // write the source before the first iteration only
    double skew_us = 0;  // delay of late_rank
    int late_rank = 0;  // rank that starts late
    double compute_us = 0;  // computation between start() and wait()
};

struct Command {
    std::string name;
    Case what;  // prepare only
    Turn turn;  // run only
};

struct Answer {
    std::string error;  // cause if the worker failed, otherwise empty
    std::string unsupported;  // cause if the operation is unsupported, otherwise empty
    std::string version;  // hello only
    int rank = -1;
    int node = 0;  // hello only, if the implementation knows it
    Costs costs;  // prepare only
    std::vector<double> times_us;  // run only; each from the arrival of the last rank
    std::vector<double> compute_us;  // run only: time of the computation without the operation
    double start_us = -1;  // run only: median duration of start() in the warm-up
    Verdict verdict;  // verify only
};

std::string to_line(const Command &command);
std::string to_line(const Answer &answer);
// Parse a line. Throw std::runtime_error.
Command command_of(const std::string &line);
Answer answer_of(const std::string &line);

}  // namespace vescomm::perf
