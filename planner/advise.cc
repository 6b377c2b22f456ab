// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string_view>

#include "planner/arithmetic.h"
#include "planner/formats/quoted.h"
#include "planner/problem.h"
#include "planner/words.h"
#include "vescomm/planner_advice.hpp"

namespace vescomm::planner {
namespace {

// Returns the elements of a row in the sense of Tensor::block_rows.
std::int64_t row_of(const Tensor &tensor) {
    std::int64_t product = 1;
    for (std::size_t i = tensor.batch_dimensions + std::size_t{1}; i < tensor.shape.size(); ++i)
        product = times(product, tensor.shape[i]);
    return product;
}

void check(const Model &model, const AdviceOptions &advice) {
    const auto refuse = [](const std::string &text) { throw std::invalid_argument(text); };
    if (model.ranks < 1) refuse(fmt::format("advice for {} ranks: give at least 1", model.ranks));
    if (!model.weights.empty())
        refuse("advice takes no weights of ranks; plan() with them for one size of group");
    if (advice.ranks_per_node < 1)
        refuse(fmt::format("ranks_per_node is {}; give at least 1", advice.ranks_per_node));
    if (!(advice.memory_bytes >= 0))
        refuse(
            fmt::format("memory_bytes is {}; give bytes, or 0 for no limit", advice.memory_bytes));
    if (advice.parameter_slots < 1 || advice.gradient_slots < 1)
        refuse(fmt::format("{} parameter_slots and {} gradient_slots: give at least 1 of each",
                           advice.parameter_slots, advice.gradient_slots));
    if (!(advice.node_bytes_per_second > 0) || !(advice.network_bytes_per_second > 0))
        refuse("bytes per second must be above 0, inside a node and between nodes");
}

struct Totals {
    double tensors = 0;  // elements
    double buffers = 0;  // elements, padding included
    double fullest = 0;  // elements that the fullest rank owns
    double fullest_gradients = 0;  // most bytes of gradients that a rank owns, as transferred
    double parameter_slot = 0;  // bytes of the largest unit, gathered
    double gradient_slot = 0;  // bytes of the largest unit's gradients
};

Totals add_up(const Model &model, const ModelAnswer &answer, const AdviceOptions &advice) {
    struct Slot {
        double parameters = 0;
        double gradients = 0;
    };
    Totals totals;
    std::map<std::string_view, Slot> slots;  // by name: a unit of several types has one name
    std::vector<double> owned(static_cast<std::size_t>(model.ranks), 0);
    std::vector<double> gradients(owned.size(), 0);
    for (std::size_t i = 0; i < model.units.size(); ++i) {
        const Unit &unit = model.units[i];
        const Answer &plan = *answer.units[i];
        const auto size = static_cast<double>(vescomm_type_get_bytes(unit.type));
        const double gathered = advice.gathered_bytes > 0 ? advice.gathered_bytes : size;
        const double gradient = advice.gradient_bytes > 0 ? advice.gradient_bytes : size;
        const auto elements = static_cast<double>(plan.elements);
        Slot &slot = slots[unit.name];
        totals.parameter_slot =
            std::max(totals.parameter_slot, slot.parameters += elements * gathered);
        totals.gradient_slot =
            std::max(totals.gradient_slot, slot.gradients += elements * gradient);
        totals.buffers += elements;
        totals.tensors += elements - static_cast<double>(plan.padding);
        for (std::size_t rank = 0; rank < owned.size(); ++rank) {
            const auto shard = static_cast<double>(plan.cuts[rank + 1] - plan.cuts[rank]);
            owned[rank] += shard;
            gradients[rank] += shard * gradient;
        }
    }
    totals.fullest = *std::ranges::max_element(owned);
    totals.fullest_gradients = *std::ranges::max_element(gradients);
    return totals;
}

// Describes a block that is larger than a fair shard of its buffer, so that one rank must hold
// more. Reports the buffer with the largest excess. Excess below a thousandth of the model, such as
// from the few f32 elements of a layer, is not reported.
std::string find_coarse_block(const Model &model, const ModelAnswer &answer, double elements) {
    constexpr double small = 0.001;  // fraction of the model's elements
    const double ranks = model.ranks;
    double worst = small * elements;
    std::string text;
    std::set<const Answer *> seen;
    for (std::size_t i = 0; i < model.units.size(); ++i) {
        const Answer &plan = *answer.units[i];
        const double excess = (static_cast<double>(plan.largest_shard) - plan.mean_shard) * ranks;
        if (excess <= worst || !seen.insert(&plan).second) continue;
        double largest = plan.mean_shard;
        for (const Place &place : plan.places) {
            const auto block = static_cast<double>(place.block);
            if (block <= largest) continue;
            largest = block;
            worst = excess;
            const Tensor &tensor = model.units[i].tensors[place.tensor];
            const auto rows =
                static_cast<std::int64_t>(plan.mean_shard / static_cast<double>(row_of(tensor)));
            const auto max = static_cast<std::int64_t>(plan.mean_shard * ranks / block);
            text = fmt::format(
                "a block of tensor {} has {}, {} times a fair shard of its buffer; use {}groups of "
                "at most {}",
                formats::quoted_text(tensor.name), count_of(place.block, "element"),
                with_commas(block / plan.mean_shard, 2),
                rows == 0 ? "" : fmt::format("blocks of at most {}, or ", count_of(rows, "row")),
                count_of(std::max<std::int64_t>(max, 1), "rank"));
        }
    }
    return text;
}

Choice examine(const Model &whole, int group, const AdviceOptions &advice, Options options) {
    Choice choice;
    choice.group = group;
    choice.replicas = whole.ranks / group;
    Model model = whole;
    model.ranks = group;
    const bool one_node = group <= advice.ranks_per_node;
    const bool all_in_one = whole.ranks <= advice.ranks_per_node;
    const double bytes_per_second =
        one_node ? advice.node_bytes_per_second : advice.network_bytes_per_second;
    options.costs.bytes_per_second = bytes_per_second;
    const ModelAnswer answer = plan(model, options);
    if (!answer.feasible) {
        choice.note = answer.explanation;
        return choice;
    }
    choice.feasible = true;
    const Totals totals = add_up(model, answer, advice);
    choice.shard_bytes =
        totals.fullest * (advice.master_bytes + advice.state_bytes + advice.gradient_shard_bytes);
    choice.slot_bytes = advice.parameter_slots * totals.parameter_slot +
                        advice.gradient_slots * totals.gradient_slot;
    choice.memory_bytes = choice.shard_bytes + choice.slot_bytes;
    choice.fits = advice.memory_bytes == 0 || choice.memory_bytes <= advice.memory_bytes;
    choice.wire_bytes_inside = answer.wire_bytes_per_step;
    // A ring or a tree moves every byte of the shard in and out once, except one replica's part.
    choice.wire_bytes_between =
        2 * totals.fullest_gradients * (choice.replicas - 1) / choice.replicas;
    const auto mean = totals.tensors / group;
    choice.padding_ratio = totals.tensors > 0 ? totals.buffers / totals.tensors - 1 : 0;
    choice.largest_over_mean = mean > 0 ? totals.fullest / mean : 1;
    choice.seconds = choice.wire_bytes_inside / bytes_per_second +
                     choice.wire_bytes_between / (all_in_one ? advice.node_bytes_per_second
                                                             : advice.network_bytes_per_second);
    choice.note = find_coarse_block(model, answer, totals.tensors);
    return choice;
}

void recommend(Advice &result, const AdviceOptions &advice) {
    const Choice *min = nullptr;  // the feasible choice with the smallest memory
    for (std::size_t i = 0; i < result.choices.size(); ++i) {
        const Choice &choice = result.choices[i];
        if (!choice.feasible) continue;
        if (min == nullptr || choice.memory_bytes < min->memory_bytes) min = &choice;
        if (choice.fits &&
            (!result.recommended || choice.seconds < result.choices[*result.recommended].seconds))
            result.recommended = i;
    }
    if (min == nullptr) {
        result.reason = "no size of group has a layout; see the notes of the choices";
    } else if (!result.recommended) {
        result.reason = fmt::format(
            "nothing fits: groups of {} need the least, {} a rank, and there are {}; use more "
            "ranks, smaller units or fewer bytes for each element",
            count_of(min->group, "rank"), show_bytes(min->memory_bytes),
            show_bytes(advice.memory_bytes));
    } else {
        const Choice &best = result.choices[*result.recommended];
        result.reason = fmt::format(
            "{} a group, {} {}: {} it spends the least time on the wire, {:.3f} s a step if "
            "nothing overlaps, and needs {} a rank",
            count_of(best.group, "rank"), with_commas(best.replicas),
            best.replicas == 1 ? "copy" : "copies",
            advice.memory_bytes > 0 ? "of the choices that fit" : "with no limit of memory given",
            best.seconds, show_bytes(best.memory_bytes));
    }
}

}  // namespace

Advice advise(const Model &model, const AdviceOptions &advice, const Options &options) {
    check(model, advice);
    Advice result;
    for (int group = 1; group <= model.ranks; ++group) {
        const bool aligned =
            advice.ranks_per_node % group == 0 || group % advice.ranks_per_node == 0;
        if (model.ranks % group != 0 || !(aligned || group == model.ranks)) continue;
        result.choices.push_back(examine(model, group, advice, options));
    }
    recommend(result, advice);
    return result;
}

}  // namespace vescomm::planner
