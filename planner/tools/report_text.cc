// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "planner/tools/report.h"
#include "planner/words.h"

namespace vescomm::planner {
namespace {

constexpr std::size_t columns = 96;

bool same_tensors(const Unit &a, const Unit &b) {
    const auto same = [](const Tensor &x, const Tensor &y) {
        return x.shape == y.shape && x.block_rows == y.block_rows &&
               x.batch_dimensions == y.batch_dimensions && x.alignment == y.alignment;
    };
    return a.type == b.type && std::ranges::equal(a.tensors, b.tensors, same);
}

// Joins "layers.0" and "layers.35" to "layers.0..35".
std::string span_of(const std::string &first, const std::string &last) {
    const auto digits = [](const std::string &name) {
        return name.find_last_not_of("0123456789") + 1;
    };
    const std::size_t at = digits(first);
    if (at == first.size() || digits(last) != at || first.substr(0, at) != last.substr(0, at))
        return first + " ...";
    return first + ".." + last.substr(at);
}

std::string shorten(const std::string &text, std::size_t width) {
    return text.size() <= width ? text : ".." + text.substr(text.size() - width + 2);
}

// Formats a ratio with at most five digits, to fit the column.
std::string show_ratio(double ratio) {
    return with_commas(ratio, ratio < 100 ? 4 : ratio < 1000 ? 2 : 0);
}

std::string table(const Report &report, const std::vector<Alike> &groups) {
    std::string text =
        fmt::format("{:26} {:>6} {:>5} {:>7} {:>9} {:>10} {:>9} {:>9}\n", "unit", "type", "units",
                    "tensors", "elements", "padding", "largest", "bound");
    for (const Alike &alike : groups) {
        const Unit &unit = report.model.units[alike.fullest];
        const Answer &answer = *report.answer.units[alike.fullest];
        const auto tensors = static_cast<double>(answer.elements - answer.padding);
        text += fmt::format(
            "{:26} {:>6} {:>5} {:>7} {:>9} {:>10} {:>9} {:>9}\n",
            shorten(printable(alike.name), 26), name_of(unit.type),
            with_commas(static_cast<std::int64_t>(alike.units.size())),
            with_commas(static_cast<std::int64_t>(unit.tensors.size())), show_count(tensors),
            tensors == 0 ? "-" : percent(static_cast<double>(answer.padding) / tensors),
            tensors == 0 ? "-" : show_ratio(answer.largest_over_share),
            tensors == 0 ? "-" : show_ratio(answer.lower_bound_over_share));
    }
    if (!report.model.weights.empty()) {
        return text +
               "(largest, bound: the largest ratio of a shard to its rank's share, and the least "
               "that\nany order of the tensors could have)\n";
    }
    return text +
           "(largest, bound: the largest shard, and the least that any order of the tensors "
           "could\nhave, over the mean shard)\n";
}

}  // namespace

std::vector<Alike> group_alike(const Report &report) {
    const std::vector<Unit> &units = report.model.units;
    std::vector<Alike> groups;
    for (std::size_t i = 0; i < units.size(); ++i) {
        const auto found = std::ranges::find_if(groups, [&](const Alike &alike) {
            return same_tensors(units[alike.units.front()], units[i]);
        });
        if (found == groups.end()) {
            groups.push_back({{i}, i, ""});
            continue;
        }
        found->units.push_back(i);
        const auto &answers = report.answer.units;
        if (answers[i]->largest_shard > answers[found->fullest]->largest_shard) found->fullest = i;
    }
    for (Alike &alike : groups) {
        const std::string &first = units[alike.units.front()].name;
        alike.name =
            alike.units.size() == 1 ? first : span_of(first, units[alike.units.back()].name);
    }
    return groups;
}

double excess_bytes(const Report &report, const Alike &alike) {
    const Answer &answer = *report.answer.units[alike.fullest];
    const double excess = static_cast<double>(answer.largest_shard) - answer.mean_shard;
    return excess * static_cast<double>(bytes_of(report.model.units[alike.fullest].type)) *
           static_cast<double>(alike.units.size());
}

std::string show_seconds(double seconds) {
    return seconds < 1 ? fmt::format("{:.1f} ms", 1e3 * seconds) : with_commas(seconds, 2) + " s";
}

std::string printable(std::string_view text) {
    std::string result(text);
    std::ranges::replace_if(
        result, [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; }, '?');
    return result;
}

std::string wrap(std::string_view text, std::size_t indent) {
    std::string result;
    std::size_t width = 0;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(' '), text.size());
        const std::string_view word = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (width > 0 && width + 1 + word.size() > columns) {
            result += "\n" + std::string(indent, ' ');
            width = indent;
        } else if (width > 0) {
            result += ' ';
            ++width;
        }
        result += word;
        width += word.size();
    }
    return result + "\n";
}

std::string tensor_class(std::string_view name, std::string_view unit) {
    if (name.size() > unit.size() && name.starts_with(unit) && name[unit.size()] == '.')
        name.remove_prefix(unit.size() + 1);
    std::string result;
    for (std::size_t i = 0; i < name.size(); ++i) {
        const auto digit = [&](std::size_t at) {
            return std::isdigit(static_cast<unsigned char>(name[at])) != 0;
        };
        // A number between dots is an index. Digits in "w1" are part of the name.
        if (digit(i) && (i == 0 || name[i - 1] == '.')) {
            std::size_t end = i;
            while (end < name.size() && digit(end)) ++end;
            if (end == name.size() || name[end] == '.') {
                result += '*';
                i = end - 1;
                continue;
            }
        }
        result += name[i];
    }
    return result;
}

std::string describe(const Report &report) {
    const ModelAnswer &answer = report.answer;
    const std::vector<Alike> groups = group_alike(report);
    std::int64_t tensors = 0;
    double elements = 0;
    for (std::size_t i = 0; i < report.model.units.size(); ++i) {
        tensors += static_cast<std::int64_t>(report.model.units[i].tensors.size());
        elements += static_cast<double>(answer.units[i]->elements - answer.units[i]->padding);
    }
    const auto bytes = static_cast<double>(answer.bytes - answer.padding_bytes);
    const auto fullest = static_cast<double>(answer.largest_rank_bytes);
    const double mean = answer.mean_rank_bytes;
    std::string text = wrap(fmt::format(
        "{} on {}, {}: {}, {} elements, {} in {}; planned in {}", printable(report.title),
        count_of(report.model.ranks, "rank"), name_of(answer.mode), count_of(tensors, "tensor"),
        show_count(elements), show_bytes(bytes),
        count_of(static_cast<std::int64_t>(report.model.units.size()), "buffer"),
        show_seconds(report.seconds)));
    text += wrap(
        fmt::format("padding {}; fullest rank {}, {} above the mean; {} on the wire in a step, {} "
                    "at {} a rank",
                    percent(bytes == 0 ? 0 : static_cast<double>(answer.padding_bytes) / bytes),
                    show_bytes(fullest), percent(mean == 0 ? 0 : fullest / mean - 1),
                    show_bytes(answer.wire_bytes_per_step), show_seconds(answer.seconds_per_step),
                    show_bandwidth(report.options.costs.bytes_per_second)));
    if (answer.mode == Mode::owner)
        text += fmt::format("optimizer's work of the busiest rank: {} of the mean\n",
                            with_commas(answer.largest_rank_cost_over_mean, 4));
    text += "\n" + table(report, groups);
    const auto widest = std::ranges::max_element(
        groups, {}, [&](const Alike &alike) { return excess_bytes(report, alike); });
    if (widest == groups.end() || elements == 0) return text;
    text += "\n" + describe_owners(report, *widest);
    text += "\n" + wrap(fmt::format("widest gap: {}: {}", printable(widest->name),
                                    answer.units[widest->fullest]->explanation));
    return text;
}

}  // namespace vescomm::planner
