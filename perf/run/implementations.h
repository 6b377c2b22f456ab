// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vescomm::perf {

// What a launcher must know.
struct Launch {
    int ranks = 1;
    // Of each host, in the order of ranks: its address and how many ranks it has. Empty: here.
    std::vector<std::pair<std::string, int>> hosts;
    std::string agent;  // a program that is given an address and a command to run there
};

// Who can be measured, and how its processes are started.
struct ImplementationRow {
    std::string_view name;
    std::string_view summary;
    std::string_view worker;  // a program beside this one; "": this program itself
    // Words before the program that start all ranks; none: each rank is started by itself.
    std::vector<std::string> (*launcher)(const Launch &launch);
    int ranks_on_host;  // 0: it is measured on one host; else the most on each of several
    std::string_view missing;  // what to do when the worker is not there
};

std::span<const ImplementationRow> implementation_rows();

// Throws std::invalid_argument, which lists them.
const ImplementationRow &find_implementation(std::string_view name);

// The words of a rank's command line, without those of the launcher.
std::vector<std::string> worker_command(const ImplementationRow &row);

// Why it cannot run in this build, on this machine, with so many ranks on so many hosts; "": it
// can.
std::string why_not(const ImplementationRow &row, int ranks, int hosts);

}  // namespace vescomm::perf
