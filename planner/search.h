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

// Name of an order that the search found, as opposed to one of orders().
constexpr std::string_view searched = "searched";

// The best order found, and the lower bound proved during the search.
struct Best {
    std::int64_t shard = unbounded;  // the minimised shard, a multiple of an alignment
    std::vector<std::size_t> order;
    std::string_view name;  // of `order`
    std::vector<std::string> names;  // of the orders tried
    std::int64_t bound = 0;  // no order has a smaller shard
    std::int64_t steps = 0;  // search steps spent beyond the fixed orders
};

// Returns the smallest shard for an order if it is smaller than `best`, otherwise nothing.
using Smallest = std::function<std::optional<std::int64_t>(std::span<const std::size_t> order,
                                                           std::int64_t best)>;

// Tries the fixed orders until one meets the bound.
Best search_fixed(const Problem &problem, const Items &items, std::int64_t bound,
                  const Smallest &smallest);

// Tries the fixed orders until one meets the bound. If none does, spends up to
// Options::search_steps on the question whether any order has a smaller shard. A positive answer
// lowers the shard, a negative one raises the bound.
Best search_uniform(const Problem &problem, const Items &items, const Options &options,
                    std::int64_t bound);
Best search_ragged(const Problem &problem, const Items &items, const Options &options,
                   std::int64_t bound);

}  // namespace vescomm::planner
