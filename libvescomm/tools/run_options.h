// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace vescomm {

// What `vescomm-run` was told to do, checked.
struct RunOptions {
    int local_ranks = 0;
    int ranks = 0;  // of the whole job
    int first_rank = 0;  // of those on this machine
    std::string address;  // "host:port" of rank 0; empty: this machine, a free port
    std::string secret;  // empty: make one up
    std::vector<std::string> nodes;  // name of the node of each local rank; empty: not set
    bool bind_to_cores = false;
    bool prefix = true;
    double grace_seconds = 5;
    std::vector<std::string> program;  // and its arguments
};

// Or what to print instead, and the exit code: help and version 0, a usage error 2.
struct RunAnswer {
    int exit_code = 0;
    std::string text;
};

std::variant<RunOptions, RunAnswer> read_run_options(int argc, const char *const *argv);

}  // namespace vescomm
