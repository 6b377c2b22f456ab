// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: per operation; a few dozen quotas are tried for each order.
#include "planner/weights.h"

#include <algorithm>

namespace vescomm::planner {

bool operator<(const Ratio &a, const Ratio &b) noexcept {
    return static_cast<Quota>(a.elements) * static_cast<Quota>(b.weight) <
           static_cast<Quota>(b.elements) * static_cast<Quota>(a.weight);
}

Shares::Shares(int ranks, std::span<const std::int64_t> weights) : ranks_(ranks) {
    const auto equal = [&](std::int64_t weight) { return weight == weights[0]; };
    if (std::ranges::all_of(weights, equal)) return;
    weights_.assign(weights.begin(), weights.end());
    for (const std::int64_t weight : weights_) sum_ += weight;
    distinct_ = weights_;
    std::ranges::sort(distinct_);
    distinct_.erase(std::unique(distinct_.begin(), distinct_.end()), distinct_.end());
    place_.reserve(weights_.size());
    for (const std::int64_t weight : weights_) {
        place_.push_back(static_cast<std::uint32_t>(std::ranges::lower_bound(distinct_, weight) -
                                                    distinct_.begin()));
    }
}

std::vector<std::int64_t> Shares::cumulative(std::int64_t whole) const {
    std::vector<std::int64_t> result;
    result.reserve(static_cast<std::size_t>(ranks_) + 1);
    if (even()) {
        const std::int64_t share = whole / ranks_;
        const std::int64_t rest = whole % ranks_;
        for (std::int64_t k = 0; k <= ranks_; ++k) result.push_back(k * share + k * rest / ranks_);
        return result;
    }
    std::int64_t before = 0;
    for (const std::int64_t weight : weights_) {
        result.push_back(multiply_divide(whole, before, sum_));
        before += weight;
    }
    result.push_back(whole);
    return result;
}

Quota Shares::limit(Quota quota, std::int64_t weight) const noexcept {
    const Quota sum = static_cast<Quota>(sum_);
    const Quota factor = static_cast<Quota>(weight);
    // In two terms, because a quota may have 124 bits.
    return quota / sum * factor + quota % sum * factor / sum;
}

template <typename Limit>
std::vector<std::int64_t> Shares::limits_by(const Limit &limit, std::int64_t max) const {
    std::vector<std::int64_t> of_weight;
    of_weight.reserve(distinct_.size());
    for (const std::int64_t weight : distinct_) {
        const Quota some = std::min<Quota>(limit(weight), static_cast<Quota>(max));
        of_weight.push_back(static_cast<std::int64_t>(some));
    }
    std::vector<std::int64_t> result;
    result.reserve(place_.size());
    for (const std::uint32_t place : place_) result.push_back(of_weight[place]);
    return result;
}

std::vector<std::int64_t> Shares::limits(Quota quota, std::int64_t max) const {
    return limits_by([&](std::int64_t weight) { return limit(quota, weight); }, max);
}

Ratio Shares::largest_ratio(std::span<const std::int64_t> loads) const {
    Ratio largest;
    for (std::size_t rank = 0; rank < loads.size(); ++rank) {
        if (loads[rank] == 0) continue;  // always 0 for a rank of weight 0
        largest = std::max(largest, {loads[rank], weights_[rank]});
    }
    return largest;
}

std::vector<std::int64_t> Shares::limits_up_to(const Ratio &ratio, std::int64_t max) const {
    const auto limit = [&ratio](std::int64_t weight) {
        const Quota product = static_cast<Quota>(ratio.elements) * static_cast<Quota>(weight);
        return product / static_cast<Quota>(ratio.weight);
    };
    return limits_by(limit, max);
}

std::vector<std::int64_t> Shares::limits_below(const Ratio &ratio, std::int64_t max) const {
    const auto limit = [&ratio](std::int64_t weight) {
        const Quota product = static_cast<Quota>(ratio.elements) * static_cast<Quota>(weight);
        return product == 0 ? product : (product - 1) / static_cast<Quota>(ratio.weight);
    };
    return limits_by(limit, max);
}

// Rounding down takes less than one element from a rank, so the search range is `ranks_` wide.
Quota Shares::quota_for_all(std::int64_t elements) const noexcept {
    const auto whole = static_cast<Quota>(elements);
    Quota low = whole;
    Quota high = whole + static_cast<Quota>(ranks_);
    while (low < high) {
        const Quota middle = low + (high - low) / 2;
        Quota sum = 0;
        for (const std::int64_t weight : weights_) sum += limit(middle, weight);
        if (sum >= whole) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

Quota Shares::quota_for_heaviest(std::int64_t elements) const noexcept {
    const Quota heaviest = static_cast<Quota>(distinct_.back());
    return (static_cast<Quota>(elements) * static_cast<Quota>(sum_) + heaviest - 1) / heaviest;
}

void Shares::raise_to_equals(std::span<std::int64_t> limits) const {
    std::vector<std::int64_t> largest(even() ? 1 : distinct_.size(), 0);
    const auto of = [&](std::size_t rank) -> std::int64_t & {
        return largest[even() ? 0 : place_[rank]];
    };
    for (std::size_t rank = 0; rank < limits.size(); ++rank) {
        of(rank) = std::max(of(rank), limits[rank]);
    }
    for (std::size_t rank = 0; rank < limits.size(); ++rank) limits[rank] = of(rank);
}

Quota Shares::quota_for_lightest(std::int64_t elements) const noexcept {
    const auto lightest = static_cast<Quota>(distinct_[distinct_.front() == 0 ? 1 : 0]);
    return (static_cast<Quota>(elements) * static_cast<Quota>(sum_) + lightest - 1) / lightest;
}

double Shares::largest_over_share(std::span<const std::int64_t> loads, std::int64_t whole) const {
    if (whole == 0) return 1;
    if (even()) {
        const std::int64_t max = std::ranges::max(loads);
        return static_cast<double>(max) * ranks_ / static_cast<double>(whole);
    }
    double largest = 0;
    for (std::size_t rank = 0; rank < loads.size(); ++rank) {
        const double part = static_cast<double>(weights_[rank]) / static_cast<double>(sum_);
        if (loads[rank] == 0) continue;
        largest = std::max(largest,
                           static_cast<double>(loads[rank]) / (part * static_cast<double>(whole)));
    }
    return largest;
}

std::optional<Quota> smallest_quota(const Line &line, const Shares &shares, Quota bound, Quota best,
                                    std::int64_t max) {
    const auto fits = [&](Quota quota) { return possible(line, shares.limits(quota, max)); };
    // With this quota every rank of nonzero weight may own everything; a larger one does not help.
    const Quota plenty = std::max(shares.quota_for_lightest(line.elements()), bound);
    Quota low = bound;
    Quota high = std::min(plenty, best - 1);
    if (low > high) return std::nullopt;
    if (fits(low)) return low;
    if (low == high || !fits(high)) return std::nullopt;
    // Answers are usually near the bound: double the distance, then bisect.
    for (Quota distance = low / 1024 + 1; high - low > distance; distance *= 2) {
        if (fits(low + distance)) {
            high = low + distance;
            break;
        }
        low += distance;
    }
    while (high - low > 1) {
        const Quota middle = low + (high - low) / 2;
        (fits(middle) ? high : low) = middle;
    }
    return high;
}

}  // namespace vescomm::planner
