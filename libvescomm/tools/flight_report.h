// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace vescomm::internal {

// The contents of a flight recorder file of one rank.
struct Flight {
    struct Operation {
        std::string collective, type, op, algorithm;
        std::uint64_t bytes = 0;
        bool completed = false;
    };
    std::string file;
    int rank = 0, ranks = 1;
    std::string status, why;
    std::uint64_t started = 0;  // number of operations started
    std::map<std::uint64_t, Operation> operations;  // the last of them, by number
};

// Parses the text of a file. The text is not trusted. Throws Error(INVALID_ARGUMENT) that names the
// file and the line.
Flight parse_flight(const std::string &file, std::string_view text);

// Reports how each rank ended, and the first difference between ranks: different operations with
// the same number, or the ranks that are behind and the operation. Throws Error(INVALID_ARGUMENT)
// if the flights are not of the ranks of one communicator.
std::string compare_flights(std::vector<Flight> flights);

// Reads and compares files.
std::string report_flights(const std::vector<std::string> &files);

}  // namespace vescomm::internal
