// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include "planner/search.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "planner/cut.h"
#include "planner/fill.h"
#include "planner/order.h"
#include "planner/place.h"
#include "planner/prove.h"
#include "planner/uniform.h"

namespace vescomm::planner {
namespace {

// Limits of the multisets, level by level. Few multisets settle most questions quickly. Each level
// gets an equal part of the remaining steps.
constexpr std::int64_t levels[] = {1 << 12, 1 << 18, 1 << 21, 1 << 24, std::int64_t{1} << 36};

// The common part of the searches of both modes.
class Search {
public:
    Search(Best &best, const Items &items, const Options &options, Smallest smallest)
        : best_(best),
          ranks_(items.ranks),
          kinds_(kinds_of(items)),
          left_(options.search_steps),
          given_(options.search_steps),
          smallest_(std::move(smallest)) {}

    const std::vector<Kind> &kinds() const noexcept { return kinds_; }
    std::int64_t best() const noexcept { return best_.shard; }
    std::int64_t steps() const noexcept { return given_ - left_; }

    // Advances to the next level. Returns false when there is none.
    bool next_level() {
        if (level_ > 0 && covers_all(kinds_, levels[level_ - 1])) return false;
        if (level_ == std::size(levels) || left_ <= 0) return false;
        reserved_ = left_ - left_ / static_cast<std::int64_t>(std::size(levels) - level_);
        ++level_;
        return true;
    }

    Verdict decide(std::int64_t shard, Filler &filler) {
        // The sums of a search must fit into 64 bits.
        if (times(shard, std::int64_t{ranks_} + 2) == unbounded) return Verdict::unknown;
        const std::int64_t max = left_ - reserved_;
        if (max <= 0) return Verdict::unknown;
        Budget budget{max};
        const Verdict verdict = planner::decide(
            {kinds_, shard, ranks_, levels[level_ - 1]}, filler,
            [this](std::vector<std::size_t> order) { return offer(std::move(order)); }, budget);
        left_ -= max - budget.steps;
        return verdict;
    }

private:
    bool offer(std::vector<std::size_t> order) {
        const std::optional<std::int64_t> shard = smallest_(order, best_.shard);
        if (!shard) return false;
        best_.shard = *shard;
        best_.order = std::move(order);
        best_.name = searched;
        return true;
    }

    Best &best_;
    int ranks_;
    std::vector<Kind> kinds_;
    std::int64_t left_;
    std::int64_t given_;
    std::int64_t reserved_ = 0;  // for later levels
    std::size_t level_ = 0;
    Smallest smallest_;
};

// Shards below the best are of two sorts (see uniform.h): multiples of each step, among which a
// larger one is never worse, and a few candidates between them.
void search_all_uniform(Best &best, Search &search, UniformSearch &uniform) {
    const std::vector<std::int64_t> &steps = uniform.steps();
    std::vector<std::int64_t> bounds(steps.size(), best.bound);
    std::vector<std::int64_t> refuted;  // candidates
    while (search.next_level()) {
        const auto decide = [&](std::int64_t shard, std::int64_t step) {
            UniformFiller filler(search.kinds(), {shard, step});
            return search.decide(shard, filler);
        };
        std::int64_t bound = best.shard;
        for (std::size_t i = 0; i < steps.size(); ++i) {
            bounds[i] = smallest_not_refuted(
                steps[i], bounds[i], [&] { return search.best(); },
                [&](std::int64_t shard) { return decide(shard, steps[i]); });
            bound = std::min(bound, bounds[i]);
        }
        for (const std::int64_t shard : uniform.candidates_below(best.shard)) {
            if (shard >= std::min(bound, best.shard)) break;
            if (std::ranges::binary_search(refuted, shard)) continue;
            if (decide(shard, 0) == Verdict::refuted) {
                refuted.insert(std::ranges::upper_bound(refuted, shard), shard);
            } else {
                bound = std::min(bound, shard);
            }
        }
        if (uniform.exhaustive()) best.bound = std::max(best.bound, std::min(bound, best.shard));
        if (best.bound == best.shard) return;
    }
}

}  // namespace

Best search_fixed(const Problem &problem, const Items &items, std::int64_t bound,
                  const Smallest &smallest) {
    Best best;
    best.bound = bound;
    for (const Order &candidate : orders()) {
        std::vector<std::size_t> order = candidate.make(problem, items);
        best.names.emplace_back(candidate.name);
        if (order == best.order) continue;
        if (const std::optional<std::int64_t> shard = smallest(order, best.shard)) {
            best.shard = *shard;
            best.order = std::move(order);
            best.name = candidate.name;
        }
        if (best.shard == best.bound) break;
    }
    return best;
}

Best search_uniform(const Problem &problem, const Items &items, const Options &options,
                    std::int64_t bound) {
    UniformSearch uniform(items, items.alignment, bound);
    const auto smallest = [&](std::span<const std::size_t> order, std::int64_t shard) {
        return uniform.smallest(order, shard);
    };
    Best best = search_fixed(problem, items, bound, smallest);
    if (best.shard > bound && best.shard != unbounded && options.search_steps > 0) {
        Search search(best, items, options, smallest);
        search_all_uniform(best, search, uniform);
        best.steps = search.steps();
    }
    return best;
}

Best search_ragged(const Problem &problem, const Items &items, const Options &options,
                   std::int64_t bound) {
    const std::int64_t unit = options.cut_alignment;
    const auto smallest = [&](std::span<const std::size_t> order, std::int64_t shard) {
        const auto offsets = concatenate(items, order);
        return smallest_largest_shard(Line(items, order, offsets), items.ranks, unit, bound, shard);
    };
    Best best = search_fixed(problem, items, bound, smallest);
    if (best.shard == bound || options.search_steps <= 0) return best;
    Search search(best, items, options, smallest);
    while (search.next_level()) {
        best.bound = smallest_not_refuted(
            unit, best.bound, [&] { return search.best(); },
            [&](std::int64_t shard) {
                RaggedFiller filler(search.kinds(), shard);
                return search.decide(shard, filler);
            });
        if (best.bound == best.shard) break;
    }
    best.steps = search.steps();
    return best;
}

}  // namespace vescomm::planner
