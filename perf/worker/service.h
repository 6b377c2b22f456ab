// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "perf/case/pattern.h"
#include "perf/worker/computation.h"
#include "perf/worker/protocol.h"

namespace vescomm::perf {

// An injected fault, for the tests of this program: VESCOMM_PERF_FAULT=KIND:NAME:RANK with the
// kinds corrupt (one element of each result), die and hang (in the first turn).
struct Fault {
    std::string kind;
    static Fault of_environment(const std::string &name, int rank);
};

// Executes commands on one rank of an implementation.
class Service {
public:
    // `meet` is the barrier before each iteration.
    Service(Implementation &implementation, int rank, Fault fault, std::function<void()> meet);

    Answer answer(const Command &command) noexcept;

private:
    Answer prepare(const Case &what);
    Answer run(const Turn &turn);
    // Appends the durations of start() to `starts`, unless it is null. Used in the warm-up.
    double run_once(const Turn &turn, std::vector<double> *starts);
    void write_source(const Turn &turn);
    double compute_once(const Turn &turn);
    Answer verify();
    void end();

    Implementation &implementation_;
    int rank_;
    Fault fault_;
    std::function<void()> meet_;
    Computation computation_;
    std::optional<Pattern> pattern_;  // while prepared
    std::int64_t output_bytes_ = 0;
    std::uint64_t round_ = 0;  // of the last iteration
    std::uint64_t written_ = 0;  // round of the source
};

}  // namespace vescomm::perf
