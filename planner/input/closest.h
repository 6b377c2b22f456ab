// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace vescomm::planner {

// " (did you mean --ranks?)" where one of the known words is a typing mistake away, or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string> &known);

}  // namespace vescomm::planner
