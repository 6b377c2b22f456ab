// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Numbers as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vescomm::planner {

// "4096", "64KiB", "1.5 GiB", "80GB": bytes. Throws InputError that begins with `option`.
std::int64_t parse_bytes(std::string_view text, std::string_view option);

// "2,1,1" or "2x8,1x8" (eight ranks of each). Throws InputError.
std::vector<std::int64_t> parse_weights(std::string_view text, std::string_view option);

std::string show_bytes(double bytes);  // "217.6 GiB"
std::string show_count(double count);  // "116.8 G"

}  // namespace vescomm::planner
