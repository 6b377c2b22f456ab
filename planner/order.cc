// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/order.h"

#include <algorithm>
#include <numeric>

namespace vescomm::planner {
namespace {

std::vector<std::size_t> by_default(const Problem &, const Items &items) {
    std::vector<std::size_t> order(items.items.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    return order;
}

// Sorts stably: equal tensors stay in the user's order, so the result is the same on every machine.
template <typename Compare, typename Key>
std::vector<std::size_t> sorted(const Problem &problem, const Items &items, Compare compare,
                                Key key) {
    std::vector<std::size_t> order = by_default(problem, items);
    std::ranges::stable_sort(order, compare, key);
    return order;
}

// Fine blocks first: they fill the shards in which coarse ones could not start.
std::vector<std::size_t> by_block_ascending(const Problem &problem, const Items &items) {
    return sorted(problem, items, std::ranges::less(),
                  [&items](std::size_t i) { return items.items[i].grid.block(); });
}

// Coarse blocks first, fine ones into the remaining space, similar to first fit decreasing.
std::vector<std::size_t> by_block_descending(const Problem &problem, const Items &items) {
    return sorted(problem, items, std::ranges::greater(),
                  [&items](std::size_t i) { return items.items[i].grid.block(); });
}

// Tensors of one shape together: their remainders in a shard repeat, and often add up to a whole.
std::vector<std::size_t> by_shape(const Problem &problem, const Items &items) {
    return sorted(problem, items, std::ranges::less(),
                  [&](std::size_t i) -> const std::vector<std::int64_t> & {
                      return problem.tensors[items.items[i].tensor].shape;
                  });
}

std::vector<std::size_t> by_size_descending(const Problem &problem, const Items &items) {
    return sorted(problem, items, std::ranges::greater(),
                  [&items](std::size_t i) { return items.items[i].elements(); });
}

constexpr Order all_orders[] = {
    {"default", by_default},
    {"block ascending", by_block_ascending},
    {"block descending", by_block_descending},
    {"shape", by_shape},
    {"size descending", by_size_descending},
};

}  // namespace

std::span<const Order> orders() {
    return all_orders;
}

}  // namespace vescomm::planner
