// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Formats numbers for sentences and tables, with a comma before every three digits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vescomm::planner {

std::string with_commas(std::int64_t number);  // "107,216,896"
std::string with_commas(double number, int decimals);  // "10,377.78"

// "1 rank", "12,500 ranks".
std::string count_of(std::int64_t count, std::string_view noun);

// Formats a fraction: 0.0574 becomes "5.74 %".
std::string percent(double fraction, int decimals = 2);

// Format with four digits and a unit.
std::string show_bytes(double bytes);  // "217.6 GiB"
std::string show_bandwidth(double bytes_per_second);  // "300 GB/s"
std::string show_count(double count);  // "116.8 G"

}  // namespace vescomm::planner
