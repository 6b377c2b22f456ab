// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Zone: set-up.
#include <fmt/format.h>

#include "planner/tools/report.h"
#include "planner/words.h"

namespace vescomm::planner {
namespace {

std::string to_text(const Compared &line) {
    if (!line.explanation.empty())
        return wrap(fmt::format("{:34} {}", line.name, line.explanation), 35);
    return fmt::format("{:34} {:>6} {:>11} {:>12} {:>14} {:>9}\n", line.name,
                       line.keeps_blocks ? "kept" : "rows", percent(line.padding_ratio),
                       with_commas(line.fullest_over_mean, 4), show_bytes(line.wire_bytes_per_step),
                       show_seconds(line.seconds));
}

}  // namespace

std::string describe(const std::vector<Compared> &comparison) {
    std::string text = fmt::format("{:34} {:>6} {:>11} {:>12} {:>14} {:>9}\n", "layout", "blocks",
                                   "padding", "fullest/mean", "wire/step", "planned");
    for (const Compared &line : comparison) text += to_text(line);
    return text +
           "(fullest: what the fullest rank holds of all buffers; wire: two gathers and a "
           "reduction\nof every buffer, each counted as (ranks - 1) times the buffer's largest "
           "shard; rows:\nblocks of more than one row are cut)\n";
}

}  // namespace vescomm::planner
