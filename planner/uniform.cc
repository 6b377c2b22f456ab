// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/uniform.h"

#include <algorithm>
#include <tuple>

#include "planner/place.h"

namespace vescomm::planner {
namespace {

// Limits that suffice for all known models. Beyond them the search is no longer exhaustive.
constexpr std::size_t max_steps = 256;
constexpr std::int64_t max_placements = std::int64_t{1} << 24;  // of one item each
constexpr std::size_t max_tries = std::size_t{1} << 20;

// Returns the distinct grids of the items. Steps and candidates depend only on these.
std::vector<Grid> distinct_grids(const Items &items) {
    std::vector<Grid> grids;
    for (const Item &item : items.items) grids.push_back(item.grid);
    const auto key = [](const Grid &grid) {
        return std::tuple(grid.period(), grid.block(), grid.elements());
    };
    std::ranges::sort(grids, std::ranges::greater(), key);
    const auto same = [&key](const Grid &a, const Grid &b) { return key(a) == key(b); };
    grids.erase(std::unique(grids.begin(), grids.end(), same), grids.end());
    return grids;
}

void sort_unique(std::vector<std::int64_t> &numbers) {
    std::ranges::sort(numbers);
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

// Adds the least common multiples of the 1, 2, ... largest items, which are most likely to lie
// across several boundaries.
void add_steps_of_largest(std::vector<std::int64_t> &steps, const Items &items,
                          std::int64_t alignment, std::int64_t max) {
    std::vector<const Item *> largest;
    for (const Item &item : items.items) largest.push_back(&item);
    std::ranges::stable_sort(largest, std::ranges::greater(), &Item::elements);
    std::int64_t step = alignment;
    for (const Item *item : largest) {
        step = least_common_multiple(step, item->grid.period());
        if (step > max) break;
        steps.push_back(step);
    }
    sort_unique(steps);
}

}  // namespace

UniformSearch::UniformSearch(const Items &items, std::int64_t alignment, std::int64_t bound)
    : items_(items), alignment_(alignment), bound_(bound) {
    // ranks * shard elements, plus one shard, must fit into 64 bits.
    const std::int64_t max = round_down(unbounded / (std::int64_t{items.ranks} + 2), alignment);
    std::int64_t everything = 0;
    for (const Item &item : items.items) {
        everything += round_up(item.elements(), alignment);
    }
    largest_ = std::min(everything, max);

    steps_ = {alignment};
    std::int64_t previous = 0;
    for (const Grid &grid : distinct_grids(items)) {
        if (grid.elements() <= bound) continue;  // never across two boundaries
        if (grid.period() == previous) continue;
        previous = grid.period();
        for (std::size_t i = steps_.size(); i-- > 0;) {
            const std::int64_t step = least_common_multiple(steps_[i], grid.period());
            if (step <= largest_) steps_.push_back(step);
        }
        sort_unique(steps_);
        if (steps_.size() > max_steps) {
            steps_.resize(max_steps);
            exhaustive_ = false;
        }
    }
    if (!exhaustive_) add_steps_of_largest(steps_, items, alignment, largest_);
}

std::optional<std::int64_t> UniformSearch::smallest(std::span<const std::size_t> order,
                                                    std::int64_t best) {
    if (bound_ >= best || bound_ > largest_) return std::nullopt;
    const auto fits = [&](std::int64_t shard, std::int64_t step) {
        return place(items_, order, {.shard = shard, .step = step});
    };
    if (fits(bound_, 0)) return bound_;

    const std::int64_t given = best;
    best = std::min(best, largest_ + 1);
    for (const std::int64_t step : steps_) {
        std::int64_t low = divide_up(bound_, step);  // may fit
        std::int64_t high = divide_up(best, step) - 1;  // the largest below the best so far
        if (low > high || !fits(high * step, step)) continue;
        // Answers are usually near the bound: double the distance, then bisect.
        for (std::int64_t distance = 0; low + distance < high; distance = 2 * distance + 1) {
            if (fits((low + distance) * step, step)) {
                high = low + distance;
                break;
            }
            low += distance + 1;
        }
        while (low < high) {
            const std::int64_t middle = low + (high - low) / 2;
            if (fits(middle * step, step)) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        best = high * step;
    }
    for (const std::int64_t shard : candidates_below(best)) {
        if (fits(shard, 0)) {
            best = shard;
            break;
        }
    }
    if (best >= given || best > largest_) return std::nullopt;
    return best;
}

// Returns the shards below `best` that can cut some restarting grid several times although they are
// not a whole number of its sub-matrices. They differ from such a number by whole blocks.
std::vector<std::int64_t> UniformSearch::candidates_below(std::int64_t best) {
    std::vector<std::int64_t> candidates;
    std::size_t tries = 0;
    for (const Grid &grid : distinct_grids(items_)) {
        if (grid.simple()) continue;
        const std::int64_t matrix = grid.sub_matrix();
        const std::int64_t blocks = (matrix - 1) / grid.block();
        // A tensor that spans n shards contains at least n - 1 of their ends. Every end after the
        // first lies further along the sub-matrix by the difference, and must not leave it.
        const std::int64_t low = std::max(bound_, grid.elements() / (blocks + 2));
        const std::int64_t high = std::min(best, grid.elements());
        for (std::int64_t whole = round_down(low, matrix);
             whole - matrix < high && tries <= max_tries; whole += matrix) {
            for (std::int64_t i = 1; i <= blocks && tries <= max_tries; ++i, ++tries) {
                for (const std::int64_t shard :
                     {whole - i * grid.block(), whole + i * grid.block()}) {
                    if (shard < low || shard >= high || shard % alignment_ != 0) continue;
                    const std::int64_t moves = divide_up(grid.elements(), shard) - 2;
                    if (times(moves, i) <= blocks) candidates.push_back(shard);
                }
            }
        }
    }
    sort_unique(candidates);
    const auto items = static_cast<std::int64_t>(items_.items.size());
    const auto max = static_cast<std::size_t>(max_placements / (items + 1));
    if (tries > max_tries || candidates.size() > max) {
        candidates.resize(std::min(candidates.size(), max));
        exhaustive_ = false;
    }
    return candidates;
}

}  // namespace vescomm::planner
