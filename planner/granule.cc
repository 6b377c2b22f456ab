// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up, except space_of(), which is per operation.
#include "planner/granule.h"

#include <algorithm>
#include <numeric>

namespace vescomm::planner {
namespace {

// Limits of the distinct sizes examined. Real layers have fewer than ten.
constexpr std::size_t max_given = 64;
constexpr std::size_t max_divisors = 256;

// Adds up granules of the same size.
std::vector<Granule> merged(std::vector<Granule> granules) {
    std::ranges::sort(granules, std::ranges::greater(), &Granule::size);
    std::vector<Granule> result;
    for (const Granule &granule : granules) {
        if (result.empty() || result.back().size != granule.size) {
            result.push_back({granule.size, 0});
        }
        result.back().elements += granule.elements;
    }
    return result;
}

}  // namespace

std::int64_t granule_of(const Grid &grid) {
    return std::gcd(grid.block(), grid.sub_matrix());
}

std::vector<Granule> common_granules(std::vector<Granule> given) {
    std::vector<Granule> distinct = merged(std::move(given));
    // Keep the sizes with most elements.
    std::ranges::stable_sort(distinct, std::ranges::greater(), &Granule::elements);
    if (distinct.size() > max_given) distinct.resize(max_given);

    std::vector<std::int64_t> divisors;
    for (const Granule &granule : distinct) {
        for (std::size_t i = divisors.size(); i-- > 0;) {
            divisors.push_back(std::gcd(divisors[i], granule.size));
        }
        divisors.push_back(granule.size);
        std::ranges::sort(divisors, std::ranges::greater());
        divisors.erase(std::unique(divisors.begin(), divisors.end()), divisors.end());
        if (divisors.size() > max_divisors) divisors.resize(max_divisors);
    }
    std::vector<Granule> result;
    for (const std::int64_t divisor : divisors) {
        result.push_back({divisor, 0});
        for (const Granule &granule : distinct) {
            if (granule.size % divisor == 0) result.back().elements += granule.elements;
        }
    }
    return result;
}

Granule coarsest(std::span<const Granule> granules, std::int64_t shard) {
    Granule best;
    std::int64_t max = -1;
    for (const Granule &granule : granules) {
        if (granule.size > shard) continue;  // does not fit at all
        const std::int64_t space = space_of(granule, shard);
        if (space <= max) continue;
        max = space;
        best = granule;
    }
    return best;
}

std::int64_t space_of(const Granule &granule, std::int64_t shard) {
    const std::int64_t whole = round_down(shard, granule.size);
    const std::int64_t inside = std::max<std::int64_t>(divide_up(granule.elements, whole) - 2, 0);
    return plus(granule.elements, times(inside, shard - whole));
}

}  // namespace vescomm::planner
