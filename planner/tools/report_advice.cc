// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include <fmt/format.h>

#include "planner/input/sizes.h"
#include "planner/tools/report.h"

namespace vescomm::planner {
namespace {

// What is wrong with the smallest groups that have something wrong; larger ones have it more.
std::string describe_notes(const Advice &advice) {
    constexpr int most = 3;
    std::string text;
    int count = 0;
    for (const Choice &choice : advice.choices)
        if (!choice.note.empty() && ++count <= most)
            text += wrap(fmt::format("groups of {}: {}", choice.group, choice.note));
    if (count > most) text += fmt::format("and so for {} larger sizes of group\n", count - most);
    return text;
}

}  // namespace

std::string describe(const Advice &advice, const AdviceOptions &assumed) {
    std::string text =
        fmt::format("{:>8} {:>7} {:>12} {:>12} {:>12} {:>8} {:>9} {:>9}\n", "group", "copies",
                    "memory/rank", "inside/step", "between", "padding", "fullest", "wire, s");
    for (std::size_t i = 0; i < advice.choices.size(); ++i) {
        const Choice &choice = advice.choices[i];
        if (!choice.feasible) {
            text += fmt::format("- {:>6} {:>7} no layout\n", choice.group, choice.replicas);
            continue;
        }
        const char mark = i == advice.recommended ? '*' : choice.fits ? '+' : '-';
        text +=
            fmt::format("{} {:>6} {:>7} {:>12} {:>12} {:>12} {:>8} {:>9.4f} {:>9.3f}\n", mark,
                        choice.group, choice.replicas, show_bytes(choice.memory_bytes),
                        show_bytes(choice.wire_bytes_inside), show_bytes(choice.wire_bytes_between),
                        percent(choice.padding_ratio), choice.largest_over_mean, choice.seconds);
    }
    text +=
        fmt::format("(* recommended, + fits{}, - does not; fullest: of the mean)\n",
                    assumed.memory_bytes > 0 ? " into " + show_bytes(assumed.memory_bytes) : "");
    text += "\n" + wrap("advice: " + advice.reason);
    text += describe_notes(advice);
    return text +
           wrap(fmt::format(
               "assumed: for each element that a rank owns {} bytes of master, {} of optimizer "
               "states and {} of gradient; {} units gathered and {} of gradients at once, in their "
               "own type; no activations; {} GB/s a rank inside a node of {} ranks, {} GB/s "
               "between nodes",
               assumed.master_bytes, assumed.state_bytes, assumed.gradient_shard_bytes,
               assumed.parameter_slots, assumed.gradient_slots, assumed.node_bytes_per_second / 1e9,
               assumed.ranks_per_node, assumed.network_bytes_per_second / 1e9));
}

}  // namespace vescomm::planner
