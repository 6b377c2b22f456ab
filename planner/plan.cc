// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The planner from top to bottom: check the problem, bound the answer, try one order of the tensors
// after another until the bound is met, and explain.
//
// Zone: set-up.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>

#include "planner/bounds.h"
#include "planner/cut.h"
#include "planner/explain.h"
#include "planner/model_plan.h"
#include "planner/order.h"
#include "planner/place.h"
#include "planner/plan.h"
#include "planner/search.h"
#include "planner/weights.h"
#include "planner/words.h"
#include "vescomm/planner.hpp"

namespace vescomm::planner {
namespace {

void set_search(Answer &answer, const Best &best) {
    answer.orders = best.names;
    answer.steps = best.steps;
}

void lay_out(Answer &answer, const Items &items, const Shares &shares, const Best &best,
             const std::vector<std::int64_t> &offsets) {
    for (const std::size_t tensor : items.empty) answer.places.push_back({tensor, 0, 1});
    for (std::size_t i = 0; i < best.order.size(); ++i) {
        const Item &item = items.items[best.order[i]];
        answer.places.push_back({item.tensor, offsets[i], item.grid.block()});
    }
    answer.order = best.name;
    set_figures(answer, items, shares);
}

// Returns a lower bound of equal shards. `items.alignment` must not be unbounded.
std::int64_t equal_bound(const Items &items, const Options &options) {
    const std::int64_t aligned = options.start_alignment;  // divides all starts
    return round_up(uniform_bound(items, aligned, round_up(lower_bound(items), aligned)),
                    items.alignment);
}

// Returns the offsets of place() for equal shards, followed by the end of the last item.
std::vector<std::int64_t> place_equal(const Items &items, const Best &best) {
    std::vector<std::int64_t> offsets(best.order.size());
    place(items, best.order, {.shard = best.shard, .step = 0}, offsets);
    offsets.push_back(offsets.back() + items.items[best.order.back()].elements());
    return offsets;
}

void plan_uniform(Answer &answer, const Problem &problem, const Options &options,
                  const Items &items) {
    if (items.alignment == unbounded) {
        answer.explanation =
            "there is no uniform layout: equal shards must be a multiple of the alignments of all "
            "tensors, and their least common multiple is out of range; use ragged shards or fewer "
            "different alignments";
        return;
    }
    answer.lower_bound = equal_bound(items, options);
    if (options.shard_limit > 0 && answer.lower_bound > options.shard_limit) {
        answer.explanation =
            too_large(problem, items, options, answer.lower_bound, "every uniform layout");
        return;
    }
    const Best best = search_uniform(problem, items, options, answer.lower_bound);
    set_search(answer, best);
    answer.lower_bound = best.bound;
    if (best.shard == unbounded) {
        answer.explanation = fmt::format(
            "there is no uniform layout: {} equal shards would hold more elements than a 64-bit "
            "integer can count; use ragged shards, finer blocks or fewer ranks{}",
            with_commas(problem.ranks), advice(problem, items));
        return;
    }
    if (options.shard_limit > 0 && best.shard > options.shard_limit) {
        answer.explanation =
            too_large(problem, items, options, best.shard, "the best uniform layout found");
        return;
    }
    const auto offsets = place_equal(items, best);
    for (std::int64_t rank = 0; rank <= problem.ranks; ++rank) {
        answer.cuts.push_back(rank * best.shard);
    }
    lay_out(answer, items, Shares(problem.ranks, {}), best, offsets);
    answer.optimal = best.shard == answer.lower_bound;
}

// Chooses the offsets for ragged shards. Concatenation is best while all tensors have one
// alignment. Otherwise padding at the end of a shard, so that the next shard begins at a multiple
// of all alignments, may be better: the offsets of equal shards are taken if they are. Returns the
// offsets.
std::vector<std::int64_t> place_ragged(Best &best, const Problem &problem, const Items &items,
                                       const Options &options) {
    const bool alike = items.alignment == options.start_alignment;
    if (!alike && items.alignment != unbounded && best.shard > best.bound) {
        Options at_once = options;
        at_once.search_steps = 0;
        const Best equal = search_uniform(problem, items, at_once, equal_bound(items, options));
        if (equal.shard < best.shard) {
            auto offsets = place_equal(items, equal);
            const auto smaller =
                smallest_largest_shard(Line(items, equal.order, offsets), items.ranks,
                                       options.cut_alignment, best.bound, best.shard);
            if (smaller) {
                best.shard = *smaller;
                best.order = equal.order;
                best.name = equal.name;
                return offsets;
            }
        }
    }
    return concatenate(items, best.order);
}

// Plans ragged shards. Shards are compared after rounding up to `unit`.
void plan_ragged(Answer &answer, const Problem &problem, const Options &options, const Items &items,
                 std::int64_t unit) {
    answer.lower_bound = lower_bound(items);
    if (options.shard_limit > 0 && answer.lower_bound > options.shard_limit) {
        answer.explanation =
            too_large(problem, items, options, answer.lower_bound, "every ragged layout");
        return;
    }
    Options rounded = options;
    rounded.cut_alignment = unit;
    Best best = search_ragged(problem, items, rounded, round_up(answer.lower_bound, unit));
    const auto offsets = place_ragged(best, problem, items, rounded);
    set_search(answer, best);
    // The bound excludes all shards up to the multiple of the unit before it.
    answer.lower_bound = std::max(answer.lower_bound, best.bound - unit + 1);
    const Line line(items, best.order, offsets);
    std::int64_t largest = best.shard;
    if (options.shard_limit > 0 && options.shard_limit < largest) {
        largest = options.shard_limit;  // rounding up to the unit must not exceed the limit
        if (!possible(line, problem.ranks, largest)) {
            // Rounding up hides orders that keep the limit, so compare exactly.
            if (unit > 1) return plan_ragged(answer, problem, options, items, 1);
            answer.explanation =
                too_large(problem, items, options, best.shard, "the best ragged layout found");
            return;
        }
    }
    answer.cuts = even_cuts(line, problem.ranks, largest, options.cut_alignment);
    lay_out(answer, items, Shares(problem.ranks, {}), best, offsets);
    answer.optimal = round_up(answer.largest_shard, unit) == best.bound;
}

// Returns true when no layout of any order has a smaller largest ratio: with a smaller one, the
// ranks together cannot hold all tensors, or no rank can hold the largest block.
bool is_min(const Ratio &ratio, const Items &items, const Shares &shares, std::int64_t max) {
    const std::vector<std::int64_t> limits = shares.limits_below(ratio, max);
    std::int64_t capacity = 0;
    for (const std::int64_t limit : limits) capacity = plus(capacity, limit);
    return capacity < items.occupied || std::ranges::max(limits) < block_bound(items);
}

std::vector<std::int64_t> weighted_cuts(const Line &line, const Shares &shares,
                                        std::span<const std::int64_t> limits,
                                        std::int64_t alignment) {
    return cuts_near(
        line, {limits, earliest_cuts(line, limits), shares.cumulative(line.elements()), alignment});
}

// Returns cuts whose largest ratio is below that of all cuts that need a larger quota. A quota is a
// whole number, so cuts with the same quota can still differ in their ratio. A few smaller ratios
// are tried.
std::vector<std::int64_t> min_cuts(const Line &line, const Shares &shares, Quota quota,
                                   std::int64_t max, std::int64_t alignment) {
    constexpr int tries = 32;
    auto cuts = weighted_cuts(line, shares, shares.limits(quota, max), alignment);
    for (int i = 0; i < tries; ++i) {
        const auto limits = shares.limits_below(shares.largest_ratio(shards_of(cuts)), max);
        if (!possible(line, limits)) break;
        cuts = weighted_cuts(line, shares, limits, alignment);
    }
    return cuts;
}

// Returns `cuts`, or cuts of which more are multiples of the alignment, if slightly larger shards
// allow these. A few elements can be several times the share of a light rank, so a shard may grow
// only by a hundredth.
std::vector<std::int64_t> aligned_cuts(const Line &line, const Shares &shares,
                                       std::vector<std::int64_t> cuts, std::int64_t max,
                                       std::int64_t alignment) {
    constexpr std::int64_t hundred = 100;
    Ratio ratio = shares.largest_ratio(shards_of(cuts));
    std::vector<std::int64_t> limits = shares.limits_up_to(ratio, max);
    for (std::int64_t &limit : limits) {
        const std::int64_t rounded = std::min(round_up(limit, alignment), max);
        if (rounded - limit <= limit / hundred) limit = rounded;
    }
    auto others = weighted_cuts(line, shares, limits, alignment);
    const auto unaligned = [&](const std::vector<std::int64_t> &of) {
        return std::ranges::count_if(of, [&](std::int64_t cut) { return cut % alignment != 0; });
    };
    return unaligned(others) < unaligned(cuts) ? others : cuts;
}

// plan_ragged() for ranks of different weights. Minimises the largest ratio of a shard to its
// rank's share instead of the largest shard.
void plan_weighted(Answer &answer, const Problem &problem, const Options &options,
                   const Items &items, const Shares &shares) {
    answer.lower_bound = lower_bound(items);
    const std::int64_t max = options.shard_limit > 0 ? options.shard_limit : unbounded;
    const Quota bound = std::max(shares.quota_for_all(items.occupied),
                                 shares.quota_for_heaviest(block_bound(items)));
    Best best;
    std::optional<Quota> quota;
    for (const Order &candidate : orders()) {
        std::vector<std::size_t> order = candidate.make(problem, items);
        answer.orders.emplace_back(candidate.name);
        if (order == best.order) continue;
        const auto offsets = concatenate(items, order);
        const std::optional<Quota> smaller = smallest_quota(Line(items, order, offsets), shares,
                                                            bound, quota.value_or(~Quota{0}), max);
        if (!smaller) continue;
        quota = smaller;
        best.order = std::move(order);
        best.name = candidate.name;
        if (*quota == bound) break;
    }
    if (!quota) {
        answer.explanation = fmt::format(
            "there is no layout: whatever the quota of the {} with their weights, some shard "
            "exceeds shard_limit, {}; use a higher limit, finer blocks or fewer weights of zero{}",
            count_of(problem.ranks, "rank"), with_commas(max), advice(problem, items));
        return;
    }
    const auto offsets = concatenate(items, best.order);
    const Line line(items, best.order, offsets);
    answer.cuts =
        aligned_cuts(line, shares, min_cuts(line, shares, *quota, max, options.cut_alignment), max,
                     options.cut_alignment);
    lay_out(answer, items, shares, best, offsets);
    answer.optimal = is_min(shares.largest_ratio(shards_of(answer.cuts)), items, shares, max);
    // Every layout needs a quota of at least `bound`, that is, more than `bound - 1`.
    const Quota min = std::max(static_cast<Quota>(items.occupied), bound - 1);
    const double over_share = static_cast<double>(min) / static_cast<double>(items.elements);
    answer.lower_bound_over_share = answer.optimal
                                        ? answer.largest_over_share
                                        : std::min(over_share, answer.largest_over_share);
}

}  // namespace

void set_figures(Answer &answer, const Items &items, const Shares &shares) {
    answer.elements = answer.cuts.back();
    answer.padding = answer.elements - items.elements;
    answer.largest_shard = 0;
    for (std::size_t k = 1; k < answer.cuts.size(); ++k)
        answer.largest_shard = std::max(answer.largest_shard, answer.cuts[k] - answer.cuts[k - 1]);
    answer.mean_shard = static_cast<double>(items.elements) / items.ranks;
    answer.largest_over_share =
        shares.even() ? shares.largest_over_share({&answer.largest_shard, 1}, items.elements)
                      : shares.largest_over_share(shards_of(answer.cuts), items.elements);
    if (shares.even() && answer.largest_shard > 0) {
        answer.lower_bound_over_share =
            answer.largest_over_share *
            (static_cast<double>(answer.lower_bound) / static_cast<double>(answer.largest_shard));
    }
    answer.feasible = true;
}

Answer plan(const Problem &problem, const Options &options) {
    if (options.mode == Mode::ragged || options.mode == Mode::uniform) {
        return plan_alone(problem, to_items(problem, options), options);
    }
    return plan_as_model(problem, options);
}

Answer plan_alone(const Problem &problem, const Items &items, const Options &options) {
    Answer answer;
    const Shares shares(problem.ranks, problem.weights);
    if (items.items.empty()) {
        answer.cuts.assign(static_cast<std::size_t>(problem.ranks) + 1, 0);
        answer.orders = {"default"};
        lay_out(answer, items, shares, Best{0, {}, "default", {}, 0, 0}, {});
        answer.optimal = true;
    } else if (options.mode == Mode::uniform) {
        plan_uniform(answer, problem, options, items);
    } else if (!shares.even()) {
        plan_weighted(answer, problem, options, items, shares);
    } else {
        plan_ragged(answer, problem, options, items, options.cut_alignment);
    }
    if (answer.feasible) answer.explanation = explain(problem, items, options, answer);
    return answer;
}

LayoutPointer make_layout(const Problem &problem, const Answer &answer) {
    return make_layout(problem.tensors, answer);
}

LayoutPointer make_layout(std::span<const Tensor> all, const Answer &answer) {
    if (!answer.feasible) {
        throw LayoutError(VESCOMM_ERROR_INVALID_ARGUMENT, answer.explanation.c_str());
    }
    std::vector<vescomm_tensor_t> tensors;
    tensors.reserve(answer.places.size());
    for (const Place &place : answer.places) {
        const Tensor &from = all[place.tensor];
        vescomm_tensor_t tensor = vescomm_tensor_init();
        tensor.dimensions = static_cast<std::int32_t>(from.shape.size());
        tensor.name = from.name.c_str();
        tensor.shape = from.shape.data();
        tensor.offset = place.offset;
        tensor.block = place.block;
        tensor.batch_dimensions = from.batch_dimensions;
        tensors.push_back(tensor);
    }
    vescomm_layout_t *layout = nullptr;
    const vescomm_status_t status =
        vescomm_layout_create(tensors.data(), tensors.size(), answer.elements, answer.cuts.data(),
                              static_cast<std::int32_t>(answer.cuts.size() - 1), &layout);
    if (status != VESCOMM_OK) throw LayoutError(status, vescomm_get_last_error());
    return LayoutPointer(layout);
}

}  // namespace vescomm::planner
