// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace vescomm {

// What the flight recorder of one rank wrote.
struct Flight {
    struct Operation {
        std::string collective, type, op, algorithm;
        std::uint64_t bytes = 0;
        bool completed = false;
    };
    std::string file;
    int rank = 0, ranks = 1;
    std::string status, why;
    std::uint64_t started = 0;  // how many operations; the last of them are here, by number
    std::map<std::uint64_t, Operation> operations;
};

// Reads the lines of a file, which may come from anywhere. Throws Error(INVALID_ARGUMENT) that
// names the file and the line.
Flight parse_flight(const std::string &file, std::string_view text);

// Says how each rank ended, and what is the first thing that is not the same on all of them: which
// rank is behind, and at what operation. Throws Error(INVALID_ARGUMENT) for flights that are not of
// the ranks of one communicator.
std::string compare_flights(std::vector<Flight> flights);

// Reads and compares files.
std::string report_flights(const std::vector<std::string> &files);

}  // namespace vescomm
