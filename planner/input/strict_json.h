// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace vescomm::planner {

// JSON from strangers: values are limited in depth and number before they cost memory, and keys
// must not repeat, since readers disagree about which of two values counts.
struct JsonLimits {
    int depth = 8;
    // Ten values describe a tensor, so this is 400,000 tensors; about 500 MB at worst.
    std::size_t values = 4'000'000;
};

// Throws InputError, its sentence beginning with `where`.
nlohmann::json parse_strictly(std::string_view text, const std::string &where,
                              const JsonLimits &limits = {});

// Between quotes, on one line, and short, whatever it is.
std::string quoted_text(std::string_view text);
std::string quoted_value(const nlohmann::json &value);

}  // namespace vescomm::planner
