// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "planner/problem.h"

namespace vescomm::planner {

// An order of the tensors in a buffer. The default order can cost five times the padding of the
// best one (DeepSeek-V3, 16 rows a block, 1,536 ranks: 26 % against 5 %). Trying a few orders is
// cheap.
struct Order {
    std::string_view name;
    // Returns indices of Items::items in buffer order.
    std::vector<std::size_t> (*make)(const Problem &problem, const Items &items);
};

// All fixed orders, by preference: of two equally good orders the planner keeps the earlier one.
std::span<const Order> orders();

}  // namespace vescomm::planner
