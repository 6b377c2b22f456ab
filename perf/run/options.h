// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "perf/case/case.h"
#include "perf/case/ragged.h"

namespace vescomm::perf {

// How the times of an iteration on several ranks are combined, with nccl-tests' numbers.
enum class Average { first_rank = 0, mean = 1, fastest = 2, slowest = 3 };

// The checked command line.
struct Options {
    std::vector<std::string> collectives = {"all_gather_v"};
    std::vector<std::string> types = {"f32"};
    std::vector<std::string> ops = {"sum"};
    int root = 0;
    std::vector<std::int64_t> sizes;  // approximate bytes of the whole buffer
    std::string ragged = "equal";
    std::int64_t block = 1;
    std::int64_t tensors = 1;
    bool shared = false;
    bool on_device = false;  // the memory of GPUs
    std::vector<std::string> places = {"out", "in"};  // on device memory; see Case::in_place
    bool wide_output = false;  // reduce_scatter_v of bf16 into f32

    int iterations = 0;  // of all rounds together; 0: chosen by time
    int warm_up = -1;  // in each turn; -1: chosen by time
    int operations = 1;
    int rounds = 5;
    int skip = 0;
    double skew_us = 0;
    int late_rank = 0;
    bool keep_sources = false;  // sources are written once for each turn
    bool overlap = false;  // measure again with computation between start() and wait()
    Average average = Average::slowest;
    bool check = true;

    std::vector<std::string> implementations = {"vescomm"};
    int ranks = 0;  // 0: the ranks that a launcher started, or one for each core
    int threads = 1;  // ranks in each process; on device memory
    int hosts = 1;
    double link_gbits = 0;  // of each host; 0: no limit
    std::string bind = "core";  // or "none"
    double timeout_seconds = 300;

    std::string json;
    bool timestamps = false;
    bool costs = false;
    bool statistics = false;
    std::vector<std::string> arguments;  // as given
};

// Text to print instead of measuring.
struct OptionsAnswer {
    int exit_code;
    std::string text;
};

std::variant<Options, OptionsAnswer> read_options(int argc, const char *const *argv);

// Returns the cases that the options select, in the order of measurement. Throws
// std::invalid_argument.
std::vector<Case> make_cases(const Options &options, int ranks);

}  // namespace vescomm::perf
