// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace vescomm::internal {

// The checked options of `vescomm-run`.
struct RunOptions {
    int local_ranks = 0;  // ranks on this machine
    int ranks = 0;  // of the whole job
    int first_rank = 0;  // lowest rank on this machine
    std::string address;  // "host:port" of rank 0; empty: this machine, a free port
    std::string secret;  // empty: generate one
    std::vector<std::string> nodes;  // VESCOMM_NODE of each local rank; empty: not set
    bool bind_to_cores = false;
    bool prefix = true;
    double grace_seconds = 5;
    int min_ranks = 0;  // of this machine that must not fail; 0: all
    std::vector<std::string> program;  // and its arguments
};

// Text to print instead of starting ranks, and the exit code: 0 for help and version, 2 for a usage
// error.
struct RunAnswer {
    int exit_code = 0;
    std::string text;
};

std::variant<RunOptions, RunAnswer> read_run_options(int argc, const char *const *argv);

}  // namespace vescomm::internal
