// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perf/run/options.h"

namespace vescomm::perf {

// Parameters of a launcher.
struct Launch {
    int ranks = 1;
    // Address and number of ranks of each host, in the order of ranks. Empty: this host.
    std::vector<std::pair<std::string, int>> hosts;
    std::string agent;  // program that runs a command on a host; arguments: address, command
};

// An implementation that can be measured, and how its processes are started.
struct ImplementationRow {
    std::string_view name;
    bool on_device;  // on the memory of GPUs; otherwise on host memory
    std::string_view summary;
    std::string_view worker;  // name of the worker program; "": this program itself
    // Returns the launcher's command line, which precedes the program and starts all ranks.
    // nullptr: each rank is started separately.
    std::vector<std::string> (*launcher)(const Launch &launch);
    int ranks_on_host;  // limit of ranks on each of several hosts; 0: only one host is supported
    std::string_view missing;  // what to do when the worker is missing
};

std::span<const ImplementationRow> implementation_rows();

// Returns the row on this memory, or that on the other memory if there is no other. Throws
// std::invalid_argument, which lists the known names.
const ImplementationRow &find_implementation(std::string_view name, bool on_device);

// Returns the command line of a rank, without the launcher.
std::vector<std::string> worker_command(const ImplementationRow &row);

// Returns the reason why an implementation cannot run in this build, on this machine, with this
// number of ranks and these options; "" if it can.
std::string why_not(const ImplementationRow &row, int ranks, const Options &options);

}  // namespace vescomm::perf
