// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "perf/run/samples.h"

namespace vescomm::perf {

// Description of a run, for headers.
struct Run {
    int ranks = 1;
    int nodes = 1;
    int cores = 1;
    // True: the ranks run on the first cores that this process may use.
    bool knows_cores = false;
    std::string started;  // time of the start, in UTC
    struct Member {
        std::string name;
        std::string text;  // version, or the reason why it is left out
    };
    std::vector<Member> members;
    std::vector<Member> left_out;
};

// The present time in UTC; `format` as for strftime().
std::string present_time(const char *format);

struct Result {
    Case what;
    std::vector<Samples> samples;
    // Time of a cache line between cores before each round (run/line_time.h); empty: not measured.
    std::vector<double> lines_ns;
};

// "near", "far", or "near and far" if the cores moved during the case; empty if not measured.
std::string distance_of(const Result &result);

// Summary of a whole run.
struct Summary {
    std::int64_t wrong = 0;
    double average_busbw = 0;  // of the first implementation, over all sizes, in GB/s
    double floor = -1;  // VESCOMM_PERF_MIN_BW; -1: none
    bool below_floor() const { return floor >= 0 && average_busbw < 0.9 * floor; }
};

Summary summarise(const std::vector<Result> &results, double floor);

// Return the text for standard output, with the columns of nccl-tests. Lines other than results
// begin with '#'.
std::string describe(const Run &run, const Options &options);
std::string column_heads(const Case &what, const Options &options);
// A comment for the rows that follow it, empty if distances were not measured.
std::string distance_line(const Result &result);
std::string rows_of(const Result &result, const Options &options);
std::string footer_of(const std::vector<Result> &results, const Summary &summary);

}  // namespace vescomm::perf
