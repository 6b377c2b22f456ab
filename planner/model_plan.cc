// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The planner for whole models, from top to bottom: group the units that are alike, plan each
// group, separately or together, add up the bytes of each rank, and explain.
//
// Zone: set-up.
#include "planner/model_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "planner/balance.h"
#include "planner/costs.h"
#include "planner/explain.h"
#include "planner/formats/quoted.h"
#include "planner/groups.h"
#include "planner/owner.h"
#include "planner/plan.h"
#include "planner/words.h"

namespace vescomm::planner {
namespace {

using Shared = std::shared_ptr<const Answer>;

constexpr std::int64_t million = 1'000'000;

std::string_view name_of(Mode mode) {
    constexpr std::string_view names[] = {"ragged", "uniform", "balanced", "owner", "automatic"};
    return names[static_cast<std::size_t>(mode)];
}

// A distinct answer and the number of buffers that use it. The bytes of a rank are a sum over
// these.
struct Share {
    const Answer *answer = nullptr;
    std::int64_t element_bytes = 1;
    std::int64_t count = 0;
};

std::vector<Share> shares_of(const Groups &groups, const ModelAnswer &answer) {
    std::vector<Share> shares;
    std::unordered_map<const Answer *, std::size_t> known;  // for look-up only, never iterated
    for (std::size_t unit = 0; unit < answer.units.size(); ++unit) {
        const Answer *const of_unit = answer.units[unit].get();
        const auto [place, is_new] = known.try_emplace(of_unit, shares.size());
        if (is_new) shares.push_back({of_unit, groups.groups[groups.of_unit[unit]].element_bytes});
        ++shares[place->second].count;
    }
    return shares;
}

// Computes the totals of a feasible answer from the answers of its units.
void add_up(ModelAnswer &answer, const Model &model, const Groups &groups, const Costs &costs) {
    answer.feasible = true;
    std::vector<std::int64_t> loads(static_cast<std::size_t>(groups.ranks), 0);
    std::int64_t bound = 0;  // bytes of the largest rank with uniform shards
    Traffic traffic;
    for (const Share &share : shares_of(groups, answer)) {
        const Answer &unit = *share.answer;
        const std::int64_t bytes = share.element_bytes * share.count;
        answer.bytes += unit.elements * bytes;
        answer.padding_bytes += unit.padding * bytes;
        bound = plus(bound, times(unit.lower_bound, bytes));
        for (std::size_t k = 0; k < loads.size(); ++k) {
            loads[k] += (unit.cuts[k + 1] - unit.cuts[k]) * bytes;
        }
        traffic.add(unit, share.element_bytes, share.count);
    }
    answer.largest_rank_bytes = *std::ranges::max_element(loads);
    answer.mean_rank_bytes = static_cast<double>(groups.bytes) / groups.ranks;
    answer.lower_bound_bytes = answer.mode == Mode::uniform
                                   ? std::max(bound, groups.lower_bound_bytes)
                                   : groups.lower_bound_bytes;
    answer.largest_over_share =
        Shares(groups.ranks, model.weights).largest_over_share(loads, groups.bytes);
    answer.wire_bytes_per_step = traffic.wire_bytes;
    answer.seconds_per_step = traffic.seconds(costs);
}

// With weights, the rank that owns most and the rank furthest above its share can differ.
void explain(ModelAnswer &answer, const Model &model, const Groups &groups,
             const std::string &more = "") {
    const bool by_weight = !Shares(groups.ranks, model.weights).even();
    answer.explanation = fmt::format(
        "{} shards for {}{} and {}, {} of them different: the largest rank owns {}, {}{} above its "
        "share, and no choice of cuts leaves {} fewer than {}; {} of {} are padding{}",
        name_of(answer.mode), count_of(groups.ranks, "rank"), by_weight ? " by weight" : "",
        count_of(static_cast<std::int64_t>(groups.of_unit.size()), "unit"),
        with_commas(static_cast<std::int64_t>(groups.groups.size())),
        count_of(answer.largest_rank_bytes, "byte"), by_weight ? "a rank is up to " : "",
        percent(answer.largest_over_share - 1), by_weight ? "the largest" : "it",
        with_commas(answer.lower_bound_bytes), with_commas(answer.padding_bytes),
        count_of(answer.bytes, "byte"), more);
}

void refuse(ModelAnswer &answer, const Model &model, std::size_t unit, const Answer &of_unit) {
    answer.units.clear();
    const std::string &name = model.units[unit].name;
    answer.explanation = of_unit.explanation;
    if (!name.empty())
        answer.explanation =
            fmt::format("unit {}: {}", formats::quoted_text(name), answer.explanation);
}

// Plans every unit on its own, ragged or uniform. Returns the answers of the groups; fewer when a
// group has no layout, which `answer` then explains.
std::vector<Shared> plan_each(ModelAnswer &answer, const Model &model, const Groups &groups,
                              Options options, Mode mode) {
    answer = {};
    answer.mode = options.mode = mode;
    std::vector<Shared> of_group;
    for (const Group &group : groups.groups) {
        auto planned =
            std::make_shared<const Answer>(plan_alone(group.problem, group.items, options));
        if (!planned->feasible) {
            refuse(answer, model, group.units.front(), *planned);
            return of_group;
        }
        of_group.push_back(std::move(planned));
    }
    for (const std::size_t group : groups.of_unit) answer.units.push_back(of_group[group]);
    add_up(answer, model, groups, options.costs);
    return of_group;
}

// The items of a group in the order and at the offsets of a planned layout.
struct Laid {
    Laid(const Group &group, const Answer &answer) {
        std::vector<std::size_t> item_of(group.problem.tensors.size());
        std::vector<bool> empty(item_of.size(), true);
        for (std::size_t i = 0; i < group.items.items.size(); ++i) {
            item_of[group.items.items[i].tensor] = i;
            empty[group.items.items[i].tensor] = false;
        }
        for (const Place &place : answer.places) {
            if (empty[place.tensor]) continue;
            order.push_back(item_of[place.tensor]);
            offsets.push_back(place.offset);
        }
        offsets.push_back(answer.elements);
    }

    std::vector<std::size_t> order;
    std::vector<std::int64_t> offsets;
};

// Returns the elements that each rank may own of a buffer: the largest shard of a rank of its
// weight when the buffer is cut on its own, plus `millionths` of it.
std::vector<std::int64_t> limits_of(const Answer &alone, const Shares &shares,
                                    std::int64_t millionths, std::int64_t shard_limit) {
    std::vector<std::int64_t> limits = shards_of(alone.cuts);
    shares.raise_to_equals(limits);
    for (std::int64_t &limit : limits) {
        limit = plus(limit, multiply_divide(limit, millionths, million));
        if (shard_limit > 0) limit = std::min(limit, shard_limit);
    }
    return limits;
}

// A larger shard of a single unit costs communication time. So the limits of the shards are raised
// in steps, and the first result that is nearly as good as the best is taken.
Balanced balance_gently(std::vector<Cuttable> &buffers, const std::vector<Shared> &alone,
                        const Shares &shares, const Options &options) {
    constexpr double nearly = 1.001;
    constexpr std::int64_t parts[] = {0, 1, 4, 16};  // of 16
    const std::int64_t max = std::llround(options.unit_imbalance * million);
    std::int64_t cuts = 0;
    for (const Cuttable &buffer : buffers) cuts += buffer.count * shares.ranks();
    const bool affordable = cuts <= max_balanced_cuts / 2;

    std::vector<Balanced> tries;
    double best = std::numeric_limits<double>::infinity();
    for (const std::int64_t part : parts) {
        if (!affordable && part != 16) continue;
        std::vector<std::vector<std::int64_t>> limits;
        for (std::size_t i = 0; i < buffers.size(); ++i) {
            limits.push_back(limits_of(*alone[i], shares, max * part / 16, options.shard_limit));
            buffers[i].limits = limits[i];
        }
        tries.push_back(balance(buffers, shares, options.cut_alignment));
        best = std::min(best, tries.back().largest_over_share);
    }
    for (Balanced &result : tries) {
        if (result.largest_over_share <= best * nearly) return std::move(result);
    }
    return std::move(tries.back());
}

// Returns true when `answer` is as good as `other` in the quantity that is minimised.
bool as_good(const Answer &answer, const Answer &other, const Shares &shares, std::int64_t unit) {
    if (shares.even())
        return round_up(answer.largest_shard, unit) <= round_up(other.largest_shard, unit);
    return !(shares.largest_ratio(shards_of(other.cuts)) <
             shares.largest_ratio(shards_of(answer.cuts)));
}

Shared with_cuts(const Answer &alone, const Items &items, const Shares &shares,
                 std::vector<std::int64_t> cuts, std::int64_t unit) {
    Answer answer = alone;
    answer.cuts = std::move(cuts);
    set_figures(answer, items, shares);
    answer.optimal = alone.optimal && as_good(answer, alone, shares, unit);
    const std::int64_t more = answer.largest_shard - alone.largest_shard;
    answer.explanation = fmt::format(
        "balanced shards for {}: the largest has {}, {} more than if the buffer were cut by "
        "itself{}; {}",
        count_of(items.ranks, "rank"), count_of(answer.largest_shard, "element"),
        more > 0 ? with_commas(more) : "no",
        more > 0 ? ", so that all units together are even" : "", describe_padding(answer));
    return std::make_shared<const Answer>(std::move(answer));
}

void plan_balanced(ModelAnswer &answer, const Model &model, const Groups &groups,
                   const Options &options) {
    const std::vector<Shared> alone = plan_each(answer, model, groups, options, Mode::ragged);
    answer.mode = Mode::balanced;
    if (!answer.feasible) return;
    const ModelAnswer ragged = answer;

    const Shares shares(groups.ranks, model.weights);
    std::vector<Laid> laid;
    std::vector<Line> lines;
    std::vector<Cuttable> buffers;
    laid.reserve(alone.size());  // `lines` and `buffers` point into it
    lines.reserve(alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) {
        const Group &group = groups.groups[i];
        laid.emplace_back(group, *alone[i]);
        lines.emplace_back(group.items, laid[i].order, laid[i].offsets);
        buffers.push_back({&lines[i], group.element_bytes, group.count(), {}});
    }
    std::vector<std::vector<Cuts>> cuts = balance_gently(buffers, alone, shares, options).cuts;

    answer = {};
    answer.mode = Mode::balanced;
    answer.units.resize(groups.of_unit.size());
    for (std::size_t i = 0; i < cuts.size(); ++i) {
        auto unit = groups.groups[i].units.begin();
        for (Cuts &some : cuts[i]) {
            const Shared shared = with_cuts(*alone[i], groups.groups[i].items, shares,
                                            std::move(some.cuts), options.cut_alignment);
            for (; some.count > 0; --some.count) answer.units[*unit++] = shared;
        }
    }
    add_up(answer, model, groups, options.costs);
    // With a few coarse blocks for each rank, the ragged cuts can happen to be better.
    if (answer.largest_over_share > ragged.largest_over_share) answer = ragged;
    explain(answer, model, groups,
            fmt::format("; units cut one by one would leave {} {} above",
                        shares.even() ? "the largest rank" : "a rank",
                        percent(ragged.largest_over_share - 1)));
}

void plan_owner(ModelAnswer &answer, const Model &model, const Groups &groups,
                const Options &options) {
    answer.mode = Mode::owner;
    Ownership owned = own(groups, options);
    for (std::size_t unit = 0; unit < owned.units.size(); ++unit) {
        Answer &of_unit = owned.units[unit];
        if (options.shard_limit > 0 && of_unit.largest_shard > options.shard_limit) {
            of_unit.explanation = fmt::format(
                "there is no layout: whole matrices need shards of {}, and shard_limit allows {}; "
                "use a higher limit, or a mode that divides matrices",
                count_of(of_unit.largest_shard, "element"), with_commas(options.shard_limit));
            refuse(answer, model, unit, of_unit);
            return;
        }
        of_unit.explanation = fmt::format(
            "whole matrices on {}: the largest shard has {}; {}", count_of(groups.ranks, "rank"),
            count_of(of_unit.largest_shard, "element"), describe_padding(of_unit));
        answer.units.push_back(std::make_shared<const Answer>(std::move(of_unit)));
    }
    add_up(answer, model, groups, options.costs);
    answer.largest_rank_cost_over_mean = owned.largest_cost_over_mean;
    answer.lower_bound_cost_over_mean = owned.bound_cost_over_mean;
    explain(answer, model, groups,
            fmt::format("; the rank that has most to do has {} more than the mean, and no "
                        "assignment of whole matrices less than {} more",
                        percent(owned.largest_cost_over_mean - 1),
                        percent(owned.bound_cost_over_mean - 1)));
}

// Returns true when `a` is faster than `b` by more than a hundredth. Estimates are not more
// precise.
bool faster(const ModelAnswer &a, const ModelAnswer &b) {
    constexpr double noise = 1.01;
    return a.seconds_per_step * noise < b.seconds_per_step;
}

void plan_cheaper(ModelAnswer &answer, const Model &model, const Groups &groups,
                  const Options &options) {
    plan_each(answer, model, groups, options, Mode::ragged);
    if (!answer.feasible) return;
    if (!Shares(groups.ranks, model.weights).even()) {
        explain(answer, model, groups, "; chosen because uniform shards cannot follow weights");
        return;
    }
    ModelAnswer uniform;
    plan_each(uniform, model, groups, options, Mode::uniform);
    if (!uniform.feasible) {
        explain(answer, model, groups,
                fmt::format("; chosen because of uniform shards {}", uniform.explanation));
        return;
    }
    const bool as_fast = !faster(answer, uniform) && !faster(uniform, answer);
    const bool smaller = uniform.largest_rank_bytes <= answer.largest_rank_bytes;
    if (as_fast ? smaller : faster(uniform, answer)) std::swap(answer, uniform);
    const ModelAnswer &other = uniform;  // the one that was not chosen
    constexpr double milliseconds = 1e3;
    const std::string why = fmt::format(
        "; chosen because a step moves its bytes in {} ms, where {} shards need {} ms and leave "
        "the largest rank {}{}",
        with_commas(milliseconds * answer.seconds_per_step, 3), name_of(other.mode),
        with_commas(milliseconds * other.seconds_per_step, 3),
        count_of(other.largest_rank_bytes, "byte"), as_fast ? ": as long, so memory decides" : "");
    explain(answer, model, groups, why);
}

ModelAnswer plan_groups(const Model &model, const Groups &groups, const Options &options) {
    ModelAnswer answer;
    switch (options.mode) {
        case Mode::balanced:
            plan_balanced(answer, model, groups, options);
            break;
        case Mode::owner:
            plan_owner(answer, model, groups, options);
            break;
        case Mode::automatic:
            plan_cheaper(answer, model, groups, options);
            break;
        default:
            plan_each(answer, model, groups, options, options.mode);
            if (answer.feasible) explain(answer, model, groups);
    }
    return answer;
}

}  // namespace

ModelAnswer plan(const Model &model, const Options &options) {
    return plan_groups(model, to_groups(model, options), options);
}

Answer plan_as_model(const Problem &problem, const Options &options) {
    to_items(problem, options);  // checks the problem; messages then name no unit
    // A type of one byte gives bytes the same limit as elements.
    const Model model{{{"", VESCOMM_U8, problem.tensors}}, problem.ranks, problem.weights};
    const Groups groups = to_groups(model, options);
    const ModelAnswer planned = plan_groups(model, groups, options);
    Answer answer;
    if (planned.feasible) answer = *planned.units.front();
    answer.explanation = planned.explanation;
    return answer;
}

LayoutPointer make_layout(const Model &model, const ModelAnswer &answer, std::size_t unit) {
    if (!answer.feasible) {
        throw LayoutError(VESCOMM_ERROR_INVALID_ARGUMENT, answer.explanation.c_str());
    }
    if (unit >= model.units.size() || unit >= answer.units.size()) {
        throw LayoutError(VESCOMM_ERROR_INVALID_ARGUMENT,
                          fmt::format("there is no unit {} in a model of {}", unit,
                                      std::min(model.units.size(), answer.units.size()))
                              .c_str());
    }
    return make_layout(model.units[unit].tensors, *answer.units[unit]);
}

}  // namespace vescomm::planner
