// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include <fmt/format.h>

#include "planner/tools/report.h"
#include "planner/words.h"

namespace vescomm::planner {
namespace {

// Lists the notes of the smallest groups that have any. Larger groups have the same problems to a
// greater extent.
std::string describe_notes(const Advice &advice) {
    constexpr int max = 3;
    std::string text;
    int count = 0;
    for (const Choice &choice : advice.choices)
        if (!choice.note.empty() && ++count <= max)
            text += wrap(fmt::format("groups of {}: {}", with_commas(choice.group), choice.note));
    if (count > max)
        text += fmt::format("and so for {} of groups\n", count_of(count - max, "larger size"));
    return text;
}

}  // namespace

std::string describe(const Advice &advice, const AdviceOptions &assumed) {
    std::string text =
        fmt::format("{:>11} {:>9} {:>11} {:>11} {:>11} {:>10} {:>8} {:>9}\n", "group", "copies",
                    "memory/rank", "inside/step", "between", "padding", "fullest", "wire, s");
    for (std::size_t i = 0; i < advice.choices.size(); ++i) {
        const Choice &choice = advice.choices[i];
        if (!choice.feasible) {
            text += fmt::format("- {:>9} {:>9} no layout\n", with_commas(choice.group),
                                with_commas(choice.replicas));
            continue;
        }
        const char mark = i == advice.recommended ? '*' : choice.fits ? '+' : '-';
        text +=
            fmt::format("{} {:>9} {:>9} {:>11} {:>11} {:>11} {:>10} {:>8} {:>9}\n", mark,
                        with_commas(choice.group), with_commas(choice.replicas),
                        show_bytes(choice.memory_bytes), show_bytes(choice.wire_bytes_inside),
                        show_bytes(choice.wire_bytes_between), percent(choice.padding_ratio),
                        with_commas(choice.largest_over_mean, 4), with_commas(choice.seconds, 3));
    }
    text += fmt::format(
        "(* recommended, + fits{}, - does not; a rank receives inside its group, and "
        "between\ncopies to keep them alike; fullest: over the mean)\n",
        assumed.memory_bytes > 0 ? " into " + show_bytes(assumed.memory_bytes) : "");
    text += "\n" + wrap("advice: " + advice.reason);
    text += describe_notes(advice);
    return text +
           wrap(fmt::format(
               "assumed: for each element that a rank owns {} bytes of master, {} of optimizer "
               "states and {} of gradient; {} gathered and {} of gradients at once, in their own "
               "type; no activations; {} a rank inside a node of {}, {} between nodes",
               assumed.master_bytes, assumed.state_bytes, assumed.gradient_shard_bytes,
               count_of(assumed.parameter_slots, "unit"), with_commas(assumed.gradient_slots),
               show_bandwidth(assumed.node_bytes_per_second),
               count_of(assumed.ranks_per_node, "rank"),
               show_bandwidth(assumed.network_bytes_per_second)));
}

}  // namespace vescomm::planner
