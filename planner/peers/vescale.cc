// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include <algorithm>
#include <numeric>
#include <vector>

#include "planner/arithmetic.h"
#include "planner/bounds.h"
#include "planner/peers/peers.h"
#include "planner/place.h"

namespace vescomm::planner {
namespace {

// Returns the steps whose multiples are tried.
std::vector<std::int64_t> steps_of(const Items &items) {
    std::vector<std::size_t> by_size(items.items.size());
    std::iota(by_size.begin(), by_size.end(), std::size_t{0});
    std::ranges::stable_sort(by_size, std::ranges::greater(),
                             [&](std::size_t i) { return items.items[i].elements(); });
    std::vector<std::int64_t> steps{items.alignment};
    for (const std::size_t i : by_size) {
        const std::int64_t step = least_common_multiple(steps.back(), items.items[i].grid.period());
        if (step == unbounded) break;
        if (step != steps.back()) steps.push_back(step);
    }
    return steps;
}

// Returns the smallest multiple of `step` in [low, high) that fits. Larger multiples fit as well.
std::int64_t smallest_multiple(const Items &items, std::span<const std::size_t> order,
                               std::int64_t step, std::int64_t low, std::int64_t high) {
    std::int64_t bad = divide_up(low, step) - 1;
    std::int64_t good = divide_up(high, step);
    if (bad + 1 >= good) return unbounded;
    const std::int64_t beyond = good;
    while (bad + 1 < good) {
        const std::int64_t middle = bad + (good - bad) / 2;
        const Shards shards{.shard = middle * step, .step = step};
        (place(items, order, shards) ? good : bad) = middle;
    }
    return good == beyond ? unbounded : good * step;
}

std::optional<std::int64_t> smallest_shard(const Problem &problem, const Options &options,
                                           bool ascending) {
    Options ours;
    ours.start_alignment = options.start_alignment;
    const Items items = to_items(problem, ours);
    if (items.items.empty()) return 0;
    if (items.alignment == unbounded) return std::nullopt;
    std::vector<std::size_t> order(items.items.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (ascending)
        std::ranges::stable_sort(order, {},
                                 [&](std::size_t i) { return items.items[i].grid.block(); });
    std::int64_t best = unbounded;
    for (const std::int64_t step : steps_of(items)) {
        // All tensors fit into one shard; twice that size leaves space for a multiple of the step.
        const std::int64_t max = std::min(
            {best, plus(times(items.occupied, 2), times(step, 2)), unbounded / problem.ranks});
        best = std::min(best, smallest_multiple(items, order, step, mean_bound(items), max));
    }
    if (best == unbounded) return std::nullopt;
    return best;
}

}  // namespace

std::optional<std::int64_t> vescale_shard(const Problem &problem, const Options &options) {
    return smallest_shard(problem, options, false);
}

std::optional<std::int64_t> vescale_ascending_shard(const Problem &problem,
                                                    const Options &options) {
    return smallest_shard(problem, options, true);
}

}  // namespace vescomm::planner
