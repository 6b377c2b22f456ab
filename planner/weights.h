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

// Of a quota Q a rank of weight w may own floor(Q * w / sum of weights). Quotas exceed 64 bits when
// one block, which only the heaviest rank can take, is a large part of everything.
__extension__ typedef unsigned __int128 Quota;

// What a rank owns over its weight, which is not 0. Exact, as a quota, which is a whole number, is
// not: what is minimised is the largest of these.
struct Ratio {
    std::int64_t elements = 0;
    std::int64_t weight = 1;
};

bool operator<(const Ratio &a, const Ratio &b) noexcept;

// How ranks share something: evenly, or in proportion to weights.
class Shares {
public:
    // `weights` are checked, copied, and empty for even shares. Equal ones make even shares too.
    Shares(int ranks, std::span<const std::int64_t> weights);

    int ranks() const noexcept { return ranks_; }
    bool even() const noexcept { return weights_.empty(); }

    // For each of ranks + 1 cuts, what the ranks before it should have of `whole`.
    std::vector<std::int64_t> cumulative(std::int64_t whole) const;

    // Not even: what each rank may own, `most` at most; saturating.
    std::vector<std::int64_t> limits(Quota quota, std::int64_t max) const;
    // The smallest quota with which all ranks together, the heaviest rank, and any rank with weight
    // may own so much.
    Quota quota_for_all(std::int64_t elements) const noexcept;
    Quota quota_for_heaviest(std::int64_t elements) const noexcept;
    Quota quota_for_lightest(std::int64_t elements) const noexcept;
    // Not even: the largest ratio, and what each rank may own, `most` at most, if its ratio must
    // not be larger, or must be smaller, than another.
    Ratio largest_ratio(std::span<const std::int64_t> loads) const;
    std::vector<std::int64_t> limits_up_to(const Ratio &ratio, std::int64_t max) const;
    std::vector<std::int64_t> limits_below(const Ratio &ratio, std::int64_t max) const;
    // Raises each limit to the largest of a rank of the same weight.
    void raise_to_equals(std::span<std::int64_t> limits) const;
    // The largest value of loads[rank] over what the rank should have of `whole`.
    double largest_over_share(std::span<const std::int64_t> loads, std::int64_t whole) const;

private:
    Quota limit(Quota quota, std::int64_t weight) const noexcept;
    // For each rank what `limit` says of its weight, `most` at most.
    template <typename Limit>
    std::vector<std::int64_t> limits_by(const Limit &limit, std::int64_t max) const;

    int ranks_;
    std::vector<std::int64_t> weights_;
    std::vector<std::int64_t> distinct_;  // weights
    std::vector<std::uint32_t> place_;  // of each rank's weight in distinct_
    std::int64_t sum_ = 0;
};

// The smallest quota in [bound, best) with which the line can be cut into shards within the limits,
// none of more than `most` elements; nothing when there is none. Exact: what is possible with a
// quota is possible with a larger one. Cost: O((items + ranks) log elements).
std::optional<Quota> smallest_quota(const Line &line, const Shares &shares, Quota bound, Quota best,
                                    std::int64_t max);

}  // namespace vescomm::planner
