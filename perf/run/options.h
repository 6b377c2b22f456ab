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

// How times of an iteration on several ranks become one; nccl-tests' numbers.
enum class Average { first_rank = 0, mean = 1, fastest = 2, slowest = 3 };

// The command line, checked.
struct Options {
    std::vector<std::string> collectives = {"all_gather_v"};
    std::vector<std::string> types = {"f32"};
    std::vector<std::string> ops = {"sum"};
    int root = 0;
    std::vector<std::int64_t> sizes;  // bytes of the whole buffer, about
    std::string ragged = "equal";
    std::int64_t block = 1;
    std::int64_t tensors = 1;
    bool shared = false;
    bool wide_output = false;  // reduce_scatter_v of bf16 into f32

    int iterations = 0;  // of all rounds together; 0: as many as fit
    int warm_up = -1;  // in each turn; -1: as many as fit
    int operations = 1;
    int rounds = 5;
    int skip = 0;
    double skew_us = 0;
    int late_rank = 0;
    bool overlap = false;  // once more, with work between start() and wait()
    Average average = Average::slowest;
    bool check = true;

    std::vector<std::string> implementations = {"vescomm"};
    int ranks = 0;  // 0: those that a launcher started, or one for each core
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

// What to print instead of measuring.
struct OptionsAnswer {
    int exit_code;
    std::string text;
};

std::variant<Options, OptionsAnswer> read_options(int argc, const char *const *argv);

// What the options ask for, in the order in which it is measured. Needs the number of ranks. Throws
// std::invalid_argument.
std::vector<Case> make_cases(const Options &options, int ranks);

}  // namespace vescomm::perf
