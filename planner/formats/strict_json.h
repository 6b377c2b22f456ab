// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace vescomm::formats {

// Limits of untrusted JSON, checked before values consume memory.
struct JsonLimits {
    int depth = 8;
    // A tensor takes about ten values, so this is 400,000 tensors; about 500 MB at worst.
    std::size_t values = 4'000'000;
};

// Parses JSON within the limits. Refuses repeated keys, because readers disagree about which of two
// values applies. Throws InputError, whose text begins with `where`.
nlohmann::json parse_strictly(std::string_view text, const std::string &where,
                              const JsonLimits &limits = {});

// Returns a value for messages, see quoted_text().
std::string quoted_value(const nlohmann::json &value);

}  // namespace vescomm::formats
