// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Numbers as people write them; planner/words.h shows them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vescomm::planner {

// "4096", "64KiB", "1.5 GiB", "80GB": bytes. Throws InputError that begins with `option`.
std::int64_t parse_bytes(std::string_view text, std::string_view option);

// "300GB", "300 GB/s", "400Gbit": bytes in a second. Throws InputError.
double parse_bandwidth(std::string_view text, std::string_view option);

// "1024", "20,000,000". Throws InputError where it is not in [low, high].
std::int64_t parse_count(std::string_view text, std::string_view option, std::int64_t low,
                         std::int64_t high);

// "4,8,4": `count` numbers in [low, high]. Throws InputError.
std::vector<double> parse_numbers(std::string_view text, std::string_view option, std::size_t count,
                                  double low, double high);

// "2,1,1" or "2x8,1x8" (eight ranks of each). Throws InputError.
std::vector<std::int64_t> parse_weights(std::string_view text, std::string_view option);

}  // namespace vescomm::planner
