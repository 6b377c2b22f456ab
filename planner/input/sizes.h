// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Parses numbers and sizes as users write them. planner/words.h formats them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vescomm::planner {

// Parses bytes: "4096", "64KiB", "1.5 GiB", "80GB". Throws InputError, whose text begins with
// `option`.
std::int64_t parse_bytes(std::string_view text, std::string_view option);

// Parses bytes per second: "300GB", "300 GB/s", "400Gbit". Throws InputError.
double parse_bandwidth(std::string_view text, std::string_view option);

// Parses a whole number: "1024", "20,000,000". Throws InputError when it is not in [low, high].
std::int64_t parse_count(std::string_view text, std::string_view option, std::int64_t low,
                         std::int64_t high);

// Parses `count` numbers in [low, high]: "4,8,4". Throws InputError.
std::vector<double> parse_numbers(std::string_view text, std::string_view option, std::size_t count,
                                  double low, double high);

// Parses weights of ranks: "2,1,1" or "2x8,1x8" (eight ranks of each). Throws InputError.
std::vector<std::int64_t> parse_weights(std::string_view text, std::string_view option);

}  // namespace vescomm::planner
