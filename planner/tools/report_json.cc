// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Writes one unit per line, which is easy to read with head and grep, and half the size of one
// number per line.
//
// Zone: set-up.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "planner/tools/report.h"

namespace vescomm::planner {
namespace {

using json = nlohmann::ordered_json;

// Returns 0 for ratios that JSON cannot represent, such as 0 / 0.
double fraction(double value, double base) {
    return base > 0 ? value / base : 0;
}

std::string to_line(const json &value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json to_json(const Tensor &tensor, const Place &place) {
    return {{"name", tensor.name},           {"shape", tensor.shape},
            {"offset", place.offset},        {"elements", count_elements(tensor.shape).value_or(0)},
            {"block_elements", place.block}, {"batch_dims", tensor.batch_dimensions}};
}

// "tensors" is in the order of the model, "order" lists their names in the order of the buffer.
json to_json(const Unit &unit, const Answer &answer, bool with_cuts) {
    json order = json::array();
    std::vector<json> tensors(unit.tensors.size());
    for (const Place &place : answer.places) {
        order.push_back(unit.tensors[place.tensor].name);
        tensors[place.tensor] = to_json(unit.tensors[place.tensor], place);
    }
    const auto largest = static_cast<double>(answer.largest_shard);
    const auto padding = static_cast<double>(answer.padding);
    json result = {{"name", unit.name},           {"dtype", name_of(unit.type)},
                   {"elements", answer.elements}, {"order", std::move(order)},
                   {"order_name", answer.order},  {"tensors", std::move(tensors)}};
    if (with_cuts) result["cuts"] = answer.cuts;
    result["padding_elements"] = answer.padding;
    result["padding_ratio"] =
        fraction(padding, static_cast<double>(answer.elements - answer.padding));
    result["largest_shard"] = answer.largest_shard;
    result["mean_shard"] = answer.mean_shard;
    result["imbalance"] = fraction(largest - answer.mean_shard, answer.mean_shard);
    result["lower_bound"] = answer.lower_bound;
    result["largest_over_share"] = answer.largest_over_share;
    result["lower_bound_over_share"] = answer.lower_bound_over_share;
    result["gap"] = fraction(answer.largest_over_share - answer.lower_bound_over_share,
                             answer.lower_bound_over_share);
    result["optimal"] = answer.optimal;
    result["explanation"] = answer.explanation;
    return result;
}

json totals_of(const Report &report) {
    const ModelAnswer &answer = report.answer;
    std::int64_t tensors = 0;
    std::int64_t elements = 0;
    std::int64_t padding = 0;
    for (std::size_t i = 0; i < report.model.units.size(); ++i) {
        tensors += static_cast<std::int64_t>(report.model.units[i].tensors.size());
        elements += answer.units[i]->elements - answer.units[i]->padding;
        padding += answer.units[i]->padding;
    }
    const auto bytes = static_cast<double>(answer.bytes - answer.padding_bytes);
    return {{"tensors", tensors},
            {"elements", elements},
            {"padding_elements", padding},
            {"bytes", answer.bytes},
            {"padding_bytes", answer.padding_bytes},
            {"padding_ratio", fraction(static_cast<double>(answer.padding_bytes), bytes)},
            {"largest_rank_bytes", answer.largest_rank_bytes},
            {"mean_rank_bytes", answer.mean_rank_bytes},
            {"lower_bound_bytes", answer.lower_bound_bytes},
            {"peak_memory_over_mean",
             fraction(static_cast<double>(answer.largest_rank_bytes), answer.mean_rank_bytes)},
            {"wire_bytes_per_step", answer.wire_bytes_per_step},
            {"seconds_per_step", answer.seconds_per_step}};
}

json to_json(const Choice &choice) {
    return {{"group", choice.group},
            {"replicas", choice.replicas},
            {"feasible", choice.feasible},
            {"fits", choice.fits},
            {"memory_bytes", choice.memory_bytes},
            {"shard_bytes", choice.shard_bytes},
            {"slot_bytes", choice.slot_bytes},
            {"wire_bytes_inside", choice.wire_bytes_inside},
            {"wire_bytes_between", choice.wire_bytes_between},
            {"padding_ratio", choice.padding_ratio},
            {"largest_over_mean", choice.largest_over_mean},
            {"seconds", choice.seconds},
            {"note", choice.note}};
}

json to_json(const AdviceOptions &assumed) {
    return {{"ranks_per_node", assumed.ranks_per_node},
            {"memory_bytes", assumed.memory_bytes},
            {"master_bytes", assumed.master_bytes},
            {"state_bytes", assumed.state_bytes},
            {"gradient_shard_bytes", assumed.gradient_shard_bytes},
            {"parameter_slots", assumed.parameter_slots},
            {"gradient_slots", assumed.gradient_slots},
            {"node_bytes_per_second", assumed.node_bytes_per_second},
            {"network_bytes_per_second", assumed.network_bytes_per_second}};
}

json to_json(const Advice &advice, const AdviceOptions &assumed) {
    json choices = json::array();
    for (const Choice &choice : advice.choices) choices.push_back(to_json(choice));
    json group;  // null
    if (advice.recommended) group = advice.choices[*advice.recommended].group;
    return {{"recommended_group", group},
            {"reason", advice.reason},
            {"assumed", to_json(assumed)},
            {"choices", std::move(choices)}};
}

// Omits the figures when there is no layout.
json to_json(const Compared &line) {
    json result = {{"name", line.name},
                   {"feasible", line.explanation.empty()},
                   {"explanation", line.explanation},
                   {"keeps_blocks", line.keeps_blocks}};
    if (!line.explanation.empty()) return result;
    result["padding_ratio"] = line.padding_ratio;
    result["peak_memory_over_mean"] = line.fullest_over_mean;
    result["wire_bytes_per_step"] = line.wire_bytes_per_step;
    result["seconds"] = line.seconds;
    return result;
}

}  // namespace

std::string to_json(const Report &report, bool with_cuts) {
    const ModelAnswer &answer = report.answer;
    std::string text = fmt::format(
        "{{\"schema\": \"vescomm-plan/1\",\n\"model\": {},\n\"ranks\": {},\n\"mode\": \"{}\",\n"
        "\"seconds\": {:.6f},\n\"feasible\": {},\n\"explanation\": {},\n\"units\": [",
        to_line(report.title), report.model.ranks,
        name_of(answer.feasible ? answer.mode : report.options.mode), report.seconds,
        answer.feasible, to_line(answer.explanation));
    if (!answer.feasible) return text + "],\n\"totals\": null}\n";
    for (std::size_t i = 0; i < report.model.units.size(); ++i)
        text += (i == 0 ? "\n" : ",\n") +
                to_line(to_json(report.model.units[i], *answer.units[i], with_cuts));
    text += "],\n\"totals\": " + to_line(totals_of(report));
    if (report.comparison) {
        json lines = json::array();
        for (const Compared &line : *report.comparison) lines.push_back(to_json(line));
        text += ",\n\"comparison\": " + to_line(lines);
    }
    if (report.advice) text += ",\n\"advice\": " + to_line(to_json(*report.advice, report.assumed));
    return text + "}\n";
}

}  // namespace vescomm::planner
