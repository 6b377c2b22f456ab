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

#include "planner/bounds.h"
#include "planner/cut.h"
#include "planner/order.h"
#include "planner/place.h"
#include "planner/uniform.h"
#include "vescomm/planner.hpp"

namespace vescomm::planner {
namespace {

// The best order so far.
struct Best {
    std::int64_t shard = unbounded;  // what was minimised: a multiple of an alignment
    std::vector<std::size_t> order;
    std::string_view name;
};

// Calls smallest(order, best shard so far), which returns a smaller shard or nothing, for one order
// after another, and stops where the bound is met.
template <typename Smallest>
Best search(const Problem &problem, const Items &items, std::int64_t bound, Smallest &&smallest,
            std::vector<std::string> &names) {
    Best best;
    for (const Order &candidate : orders()) {
        std::vector<std::size_t> order = candidate.make(problem, items);
        names.emplace_back(candidate.name);
        if (order == best.order) continue;
        if (const std::optional<std::int64_t> shard = smallest(order, best.shard)) {
            best = {*shard, std::move(order), candidate.name};
        }
        if (best.shard == bound) break;
    }
    return best;
}

double percent_above(std::int64_t value, double base) {
    return base == 0 ? 0 : 100 * (static_cast<double>(value) / base - 1);
}

// What makes a shard so large, and what to do about it; empty when nothing can be.
std::string advice(const Problem &problem, const Items &items) {
    const auto coarsest = std::ranges::max_element(
        items.items, {}, [](const Item &item) { return item.grid.block(); });
    if (coarsest == items.items.end()) return "";
    const std::int64_t block = coarsest->grid.block();
    const std::int64_t ranks = items.elements / block;
    if (ranks >= items.ranks) return "";
    return fmt::format(
        "; a block of tensor {} holds {} elements, more than the mean shard: use finer "
        "blocks, or no more than {} ranks for one buffer",
        quoted(problem.tensors[coarsest->tensor].name), block, ranks);
}

std::string explain(const Problem &problem, const Items &items, const Options &options,
                    const Answer &answer) {
    const std::string proof =
        answer.optimal
            ? std::string("proved to be the smallest possible")
            : fmt::format(
                  "the smallest found in {} orders, {:.2f} % above the lower bound of {}",
                  answer.orders.size(),
                  percent_above(answer.largest_shard, static_cast<double>(answer.lower_bound)),
                  answer.lower_bound);
    return fmt::format(
        "{} shards for {} ranks: the largest has {} elements, {:.2f} % above the mean, "
        "{}; {} of the buffer's {} elements are padding{}",
        options.mode == Mode::uniform ? "uniform" : "ragged", problem.ranks, answer.largest_shard,
        percent_above(answer.largest_shard, answer.mean_shard), proof, answer.padding,
        answer.elements, advice(problem, items));
}

void lay_out(Answer &answer, const Items &items, const Best &best,
             const std::vector<std::int64_t> &offsets) {
    for (const std::size_t tensor : items.empty) answer.places.push_back({tensor, 0, 1});
    for (std::size_t i = 0; i < best.order.size(); ++i) {
        const Item &item = items.items[best.order[i]];
        answer.places.push_back({item.tensor, offsets[i], item.grid.block()});
    }
    answer.order = best.name;
    answer.elements = answer.cuts.back();
    answer.padding = answer.elements - items.elements;
    for (std::size_t i = 1; i < answer.cuts.size(); ++i) {
        answer.largest_shard = std::max(answer.largest_shard, answer.cuts[i] - answer.cuts[i - 1]);
    }
    answer.feasible = true;
}

std::string too_large(const Problem &problem, const Items &items, const Options &options,
                      std::int64_t shard, const char *what) {
    return fmt::format(
        "there is no layout: {} needs shards of {} elements, and shard_limit allows "
        "{}; use more ranks, finer blocks or a higher limit{}",
        what, shard, options.shard_limit, advice(problem, items));
}

void plan_uniform(Answer &answer, const Problem &problem, const Options &options,
                  const Items &items) {
    const std::int64_t alignment = options.start_alignment;
    answer.lower_bound = uniform_bound(
        items, alignment, round_up(std::max(mean_bound(items), block_bound(items)), alignment));
    if (options.shard_limit > 0 && answer.lower_bound > options.shard_limit) {
        answer.explanation =
            too_large(problem, items, options, answer.lower_bound, "every uniform layout");
        return;
    }
    UniformSearch uniform(items, alignment, answer.lower_bound);
    const Best best = search(
        problem, items, answer.lower_bound,
        [&](const auto &order, std::int64_t shard) { return uniform.smallest(order, shard); },
        answer.orders);
    if (best.shard == unbounded) {
        answer.explanation = fmt::format(
            "there is no uniform layout: {} equal shards would hold more elements than a 64-bit "
            "integer can count; use ragged shards, finer blocks or fewer ranks{}",
            problem.ranks, advice(problem, items));
        return;
    }
    if (options.shard_limit > 0 && best.shard > options.shard_limit) {
        answer.explanation =
            too_large(problem, items, options, best.shard, "the best uniform layout found");
        return;
    }
    std::vector<std::int64_t> offsets(best.order.size());
    place(items, best.order, {.shard = best.shard, .alignment = alignment, .step = 0}, offsets);
    for (std::int64_t rank = 0; rank <= problem.ranks; ++rank) {
        answer.cuts.push_back(rank * best.shard);
    }
    lay_out(answer, items, best, offsets);
    answer.optimal = best.shard == answer.lower_bound;
}

void plan_ragged(Answer &answer, const Problem &problem, const Options &options,
                 const Items &items) {
    const std::int64_t unit = options.cut_alignment;
    answer.lower_bound = std::max(mean_bound(items), block_bound(items));
    if (options.shard_limit > 0 && answer.lower_bound > options.shard_limit) {
        answer.explanation =
            too_large(problem, items, options, answer.lower_bound, "every ragged layout");
        return;
    }
    const std::int64_t bound = round_up(answer.lower_bound, unit);
    const Best best = search(
        problem, items, bound,
        [&](const auto &order, std::int64_t shard) {
            const auto offsets = concatenate(items, order, options.start_alignment);
            return smallest_largest_shard(Line(items, order, offsets), problem.ranks, unit, bound,
                                          shard);
        },
        answer.orders);
    const auto offsets = concatenate(items, best.order, options.start_alignment);
    const Line line(items, best.order, offsets);
    std::int64_t largest = best.shard;
    if (options.shard_limit > 0 && options.shard_limit < largest) {
        largest = options.shard_limit;  // rounding up to the unit must not exceed the limit
        if (!possible(line, problem.ranks, largest)) {
            answer.explanation =
                too_large(problem, items, options, best.shard, "the best ragged layout found");
            return;
        }
    }
    answer.cuts = even_cuts(line, problem.ranks, largest, unit);
    lay_out(answer, items, best, offsets);
    answer.optimal = round_up(answer.largest_shard, unit) == bound;
}

}  // namespace

Answer plan(const Problem &problem, const Options &options) {
    const Items items = to_items(problem, options);
    Answer answer;
    if (items.items.empty()) {
        answer.cuts.assign(static_cast<std::size_t>(problem.ranks) + 1, 0);
        answer.orders = {"default"};
        lay_out(answer, items, {0, {}, "default"}, {});
        answer.optimal = true;
    } else if (options.mode == Mode::uniform) {
        plan_uniform(answer, problem, options, items);
    } else {
        plan_ragged(answer, problem, options, items);
    }
    if (answer.feasible) {
        answer.mean_shard = static_cast<double>(items.elements) / problem.ranks;
        answer.explanation = explain(problem, items, options, answer);
    }
    return answer;
}

LayoutPointer make_layout(const Problem &problem, const Answer &answer) {
    if (!answer.feasible) {
        throw LayoutError(VESCOMM_ERROR_INVALID_ARGUMENT, answer.explanation.c_str());
    }
    std::vector<vescomm_tensor_t> tensors;
    tensors.reserve(answer.places.size());
    for (const Place &place : answer.places) {
        const Tensor &from = problem.tensors[place.tensor];
        vescomm_tensor_t tensor = vescomm_tensor();
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
                              problem.ranks, &layout);
    if (status != VESCOMM_OK) throw LayoutError(status, vescomm_last_error());
    return LayoutPointer(layout);
}

}  // namespace vescomm::planner
