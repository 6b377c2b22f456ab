// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/cut.h"

namespace vescomm::planner {

// With a quota Q, a rank of weight w may own floor(Q * w / sum of weights) elements. A quota needs
// more than 64 bits when one block, which only the heaviest rank can take, is a large part of the
// buffer.
__extension__ typedef unsigned __int128 Quota;

// The elements that a rank owns over its weight, which is not 0. The planner minimises the largest
// ratio. A ratio is exact, whereas a quota is rounded to a whole number.
struct Ratio {
    std::int64_t elements = 0;
    std::int64_t weight = 1;
};

bool operator<(const Ratio &a, const Ratio &b) noexcept;

// Shares of the ranks: even, or in proportion to weights.
class Shares {
public:
    // `weights` are already checked, and are copied. Empty or equal weights make even shares.
    Shares(int ranks, std::span<const std::int64_t> weights);

    int ranks() const noexcept { return ranks_; }
    bool even() const noexcept { return weights_.empty(); }

    // Returns, for each of ranks + 1 cuts, the sum of the shares of `whole` before the cut.
    std::vector<std::int64_t> cumulative(std::int64_t whole) const;

    // Returns the elements that each rank may own with a quota, `max` at most; saturating.
    // Requires weights.
    std::vector<std::int64_t> limits(Quota quota, std::int64_t max) const;
    // Return the smallest quota with which all ranks together, the heaviest rank, or the lightest
    // rank of nonzero weight may own `elements`.
    Quota quota_for_all(std::int64_t elements) const noexcept;
    Quota quota_for_heaviest(std::int64_t elements) const noexcept;
    Quota quota_for_lightest(std::int64_t elements) const noexcept;
    // Returns the largest ratio of a rank. Requires weights.
    Ratio largest_ratio(std::span<const std::int64_t> loads) const;
    // Return the elements that each rank may own, `max` at most, when its ratio must not exceed
    // `ratio`, or must be below it. Require weights.
    std::vector<std::int64_t> limits_up_to(const Ratio &ratio, std::int64_t max) const;
    std::vector<std::int64_t> limits_below(const Ratio &ratio, std::int64_t max) const;
    // Raises each limit to the largest limit of a rank with the same weight.
    void raise_to_equals(std::span<std::int64_t> limits) const;
    // Returns the largest value of loads[rank] over the rank's share of `whole`.
    double largest_over_share(std::span<const std::int64_t> loads, std::int64_t whole) const;

private:
    Quota limit(Quota quota, std::int64_t weight) const noexcept;
    // Returns limit(weight) for each rank, `max` at most.
    template <typename Limit>
    std::vector<std::int64_t> limits_by(const Limit &limit, std::int64_t max) const;

    int ranks_;
    std::vector<std::int64_t> weights_;
    std::vector<std::int64_t> distinct_;  // the distinct weights, ascending
    std::vector<std::uint32_t> place_;  // index of each rank's weight in distinct_
    std::int64_t sum_ = 0;
};

// Returns the smallest quota in [bound, best) with which the line can be cut into shards within the
// limits, each of at most `max` elements; nothing when there is none. Exact, because a layout
// within a quota is also within any larger one. Cost: O((items + ranks) log elements).
std::optional<Quota> smallest_quota(const Line &line, const Shares &shares, Quota bound, Quota best,
                                    std::int64_t max);

}  // namespace vescomm::planner
