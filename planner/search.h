// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/problem.h"

namespace vescomm::planner {

// The name of an order that is none of orders().
constexpr std::string_view searched = "searched";

// The best order found, and what was proved meanwhile.
struct Best {
    std::int64_t shard = unbounded;  // what was minimised: a multiple of an alignment
    std::vector<std::size_t> order;
    std::string_view name;
    std::vector<std::string> names;  // of the orders tried
    std::int64_t bound = 0;  // no order has a smaller shard
    std::int64_t steps = 0;  // taken to search beyond the fixed orders
};

// The smallest shard for an order that is smaller than `best`, or nothing.
using Smallest = std::function<std::optional<std::int64_t>(std::span<const std::size_t> order,
                                                           std::int64_t best)>;

// Tries the fixed orders, until one meets the bound.
Best search_fixed(const Problem &problem, const Items &items, std::int64_t bound,
                  const Smallest &smallest);

// First the fixed orders, until one meets the bound. Then, for Options::search_steps: is there any
// order with a smaller shard? Every answer either lowers the shard or raises the bound.
Best search_uniform(const Problem &problem, const Items &items, const Options &options,
                    std::int64_t bound);
Best search_ragged(const Problem &problem, const Items &items, const Options &options,
                   std::int64_t bound);

}  // namespace vescomm::planner
