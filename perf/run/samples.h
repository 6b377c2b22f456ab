// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The samples of one implementation in one case, and the figures computed from them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perf/case/case.h"
#include "perf/run/options.h"
#include "perf/worker/implementation.h"

namespace vescomm::perf {

// Measurement with computation between start() and wait(): medians of one round.
struct Overlap {
    double operation_us = 0;  // without the computation
    double compute_us = 0;  // without the operation
    double total_us = 0;  // both

    // Returns the hidden part of the operation's time. 100: the total equals the computation.
    double hidden_percent() const;
};

struct Samples {
    std::string implementation;
    std::string unsupported;  // the reason if nothing was measured, otherwise ""
    bool failed = false;  // true: the reason is a failure, not an unsupported operation
    std::vector<std::vector<double>> rounds_us;  // the time of each iteration of each round
    std::vector<Overlap> overlaps;  // one for each round
    Costs costs;
    double start_us = -1;
    std::int64_t wrong = -1;  // elements; -1: not verified
    std::string first_wrong;
    double ratio = -1;  // time over that of the first implementation; -1: none
};

// Combines the times of one iteration on all ranks.
double combine(Average average, const std::vector<double> &ranks);

struct Figures {
    double min = 0, p50 = 0, p99 = 0, max = 0;
    double variation = 0;  // standard deviation over mean
};
Figures figures_of(const Samples &samples);

// Medians over rounds of the members of Overlap and of the hidden part.
struct OverlapFigures {
    double compute_us = -1, total_us = -1, hidden_percent = 0;
};
OverlapFigures overlap_of(const Samples &samples);

double median(std::vector<double> values);  // of at least one value
double percentile(std::vector<double> values, double part);

// Return the bandwidth in GB/s (10^9 bytes) for a time; 0 if the time is 0 or nothing is moved.
double algbw(const Case &what, double time_us);
double busbw(const Case &what, double time_us);

// Returns the time of `peer` over that of `ours`: the median over rounds of the ratio of medians. A
// ratio within a round compares times that were measured shortly after one another.
double ratio_of(const Samples &peer, const Samples &ours);

}  // namespace vescomm::perf
