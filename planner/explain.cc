// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "planner/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/formats/quoted.h"
#include "planner/words.h"

namespace vescomm::planner {
namespace {

double above(std::int64_t value, double base) {
    return base == 0 ? 0 : static_cast<double>(value) / base - 1;
}

// Describes whether a smaller largest shard is possible.
std::string describe_proof(const Answer &answer, const Options &options) {
    const std::string steps =
        answer.steps == 0 ? "" : fmt::format(" and {} of search", count_of(answer.steps, "step"));
    if (!answer.optimal) {
        const auto orders = static_cast<std::int64_t>(answer.orders.size());
        return fmt::format(
            "the smallest found in {}{}, {} above the proved lower bound of {}",
            count_of(orders, "order"), steps,
            percent(above(answer.largest_shard, static_cast<double>(answer.lower_bound)), 3),
            with_commas(answer.lower_bound));
    }
    std::string terms;
    if (answer.largest_shard > answer.lower_bound) {
        terms = fmt::format(" in multiples of {}, the cut alignment",
                            with_commas(options.cut_alignment));
    }
    return fmt::format("proved to be the smallest possible{}, by a lower bound{}", terms, steps);
}

// describe_proof() for problems with weights, which minimise the ratio of a shard to its rank's
// share.
std::string describe_proof_by_weight(const Answer &answer) {
    if (answer.optimal) return "proved to be the least possible, by a lower bound";
    const auto orders = static_cast<std::int64_t>(answer.orders.size());
    return fmt::format("the least found in {}, {} above the proved lower bound",
                       count_of(orders, "order"),
                       percent(answer.largest_over_share / answer.lower_bound_over_share - 1, 3));
}

}  // namespace

std::string advice(const Problem &problem, const Items &items) {
    const auto coarsest = std::ranges::max_element(
        items.items, {}, [](const Item &item) { return item.grid.block(); });
    if (coarsest == items.items.end()) return "";
    const std::int64_t block = coarsest->grid.block();
    const std::int64_t ranks = items.elements / block;
    if (ranks >= items.ranks) return "";
    return fmt::format(
        "; a block of tensor {} holds {}, more than the mean shard: use finer blocks, or no more "
        "than {} for one buffer",
        formats::quoted_text(problem.tensors[coarsest->tensor].name), count_of(block, "element"),
        count_of(ranks, "rank"));
}

std::string describe_padding(const Answer &answer) {
    if (answer.padding == 0) return "no padding";
    return fmt::format("{} of the buffer's {} are padding", with_commas(answer.padding),
                       count_of(answer.elements, "element"));
}

std::string explain(const Problem &problem, const Items &items, const Options &options,
                    const Answer &answer) {
    const std::string largest = count_of(answer.largest_shard, "element");
    const std::string more = describe_padding(answer) + advice(problem, items);
    if (!Shares(problem.ranks, problem.weights).even()) {
        return fmt::format(
            "ragged shards for {} by weight: the largest has {}, and a shard is up to {} above its "
            "rank's share, {}; {}",
            count_of(problem.ranks, "rank"), largest, percent(answer.largest_over_share - 1),
            describe_proof_by_weight(answer), more);
    }
    return fmt::format("{} shards for {}: the largest has {}, {} above the mean, {}; {}",
                       options.mode == Mode::uniform ? "uniform" : "ragged",
                       count_of(problem.ranks, "rank"), largest,
                       percent(above(answer.largest_shard, answer.mean_shard)),
                       describe_proof(answer, options), more);
}

std::string too_large(const Problem &problem, const Items &items, const Options &options,
                      std::int64_t shard, const char *what) {
    return fmt::format(
        "there is no layout: {} needs shards of {}, and shard_limit allows {}; use more ranks, "
        "finer blocks or a higher limit{}",
        what, count_of(shard, "element"), with_commas(options.shard_limit), advice(problem, items));
}

}  // namespace vescomm::planner
