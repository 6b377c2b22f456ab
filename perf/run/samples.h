// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// What was measured of one implementation in one case, and the figures made of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perf/case/case.h"
#include "perf/run/options.h"
#include "perf/worker/implementation.h"

namespace vescomm::perf {

// Computation between start() and wait(): medians of one round.
struct Overlap {
    double operation_us = 0;  // without the computation
    double compute_us = 0;  // without the operation
    double total_us = 0;  // both

    // Of the operation's time; 100: the computation is all that one waits for.
    double hidden_percent() const;
};

struct Samples {
    std::string implementation;
    std::string unsupported;  // why nothing was measured; "": it was
    bool failed = false;  // and that is no want of a feature, but a failure
    std::vector<std::vector<double>> rounds_us;  // a time for each iteration of each round
    std::vector<Overlap> overlaps;  // of each round
    Costs costs;
    double start_us = -1;
    std::int64_t wrong = -1;  // elements; -1: not verified
    std::string first_wrong;
    double ratio = -1;  // of time to that of the first implementation; -1: there is none
};

// One number for each iteration, of the times on all ranks.
double combine(Average average, const std::vector<double> &ranks);

struct Figures {
    double min = 0, p50 = 0, p99 = 0, max = 0;
    double variation = 0;  // standard deviation over mean
};
Figures figures_of(const Samples &samples);

// Medians over rounds of what an overlap consists of, and of how much is hidden.
struct OverlapFigures {
    double compute_us = -1, total_us = -1, hidden_percent = 0;
};
OverlapFigures overlap_of(const Samples &samples);

double median(std::vector<double> values);  // of at least one
double percentile(std::vector<double> values, double part);

// In GB/s (10^9 bytes), of the median time; 0 where there is nothing to move.
double algbw(const Case &what, double time_us);
double busbw(const Case &what, double time_us);

// How much longer `peer` takes than `ours`: the median over rounds of the ratio of their medians,
// so that both were measured in the same minute.
double ratio_of(const Samples &peer, const Samples &ours);

}  // namespace vescomm::perf
