// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "planner/problem.h"

namespace vescomm::planner {

// A way to line up the tensors of a buffer. The default order can cost five times the padding of
// the best one (DeepSeek-V3, 16 rows a block, 1,536 ranks: 26 % against 5 %), and trying a few
// costs little.
struct Order {
    std::string_view name;
    // Indices of Items::items, first in the buffer first.
    std::vector<std::size_t> (*make)(const Problem &problem, const Items &items);
};

// Best liked first: of two orders that are equally good, the planner keeps the earlier one.
std::span<const Order> orders();

}  // namespace vescomm::planner
