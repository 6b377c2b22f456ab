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
        // Messages: " to rank 1 with tag 7", " from any rank, found at rank 2, with tag 0".
        std::string message = {};
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
// the same number, or the ranks that are behind and the operation. If there are messages, ranks
// have different numbers for the same operation: the first incomplete operation and the last
// complete message of each rank follow instead. Throws Error(INVALID_ARGUMENT) if the flights are
// not of the ranks of one communicator.
std::string compare_flights(std::vector<Flight> flights);

// Reads and compares files.
std::string report_flights(const std::vector<std::string> &files);

}  // namespace vescomm::internal
