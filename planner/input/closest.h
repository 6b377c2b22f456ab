// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vescomm::planner {

// Returns " (did you mean --ranks?)" with the known word closest to `word`, or "" when none is
// close.
std::string did_you_mean(std::string_view word, const std::vector<std::string> &known);

}  // namespace vescomm::planner
