// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The same tensors laid out by each of our modes, and by others. Zone: set-up.
#include <fmt/format.h>

#include <chrono>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

#include "planner/input/sizes.h"
#include "planner/peers/peers.h"
#include "planner/tools/report.h"

namespace vescomm::planner {
namespace {

// Every unit is gathered twice and reduced once in a step.
constexpr double collectives_per_step = 3;

struct Line {
    std::string name;
    bool keeps_blocks = true;
    double padding = 0;  // over the bytes of tensors
    double fullest = 0;  // over the mean
    double wire = 0;  // bytes, in a step
    double seconds = 0;
};

std::string to_text(const Line &line) {
    return fmt::format("{:34} {:>6} {:>10} {:>13.4f} {:>14} {:>9}\n", line.name,
                       line.keeps_blocks ? "kept" : "rows", percent(line.padding), line.fullest,
                       show_bytes(line.wire), show_seconds(line.seconds));
}

class Stopwatch {
public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string ours(const Report &report, Mode mode) {
    Options options = report.options;
    options.mode = mode;
    const std::string name = fmt::format("vescomm {}", name_of(mode));
    const auto failed = [&](const std::string &why) {
        return wrap(fmt::format("{:34} {}", name, why), 35);
    };
    try {
        const Stopwatch watch;
        const ModelAnswer answer = plan(report.model, options);
        if (!answer.feasible) return failed(answer.explanation);
        const auto bytes = static_cast<double>(answer.bytes - answer.padding_bytes);
        Line line{.name = name, .seconds = watch.seconds()};
        line.padding = bytes > 0 ? static_cast<double>(answer.padding_bytes) / bytes : 0;
        line.fullest = answer.mean_rank_bytes > 0
                           ? static_cast<double>(answer.largest_rank_bytes) / answer.mean_rank_bytes
                           : 1;
        line.wire = answer.wire_bytes_per_step;
        return to_text(line);
    } catch (const std::invalid_argument &error) {
        return failed(error.what());
    }
}

std::string theirs(const Report &report, const std::vector<Alike> &groups, const Peer &peer) {
    const Stopwatch watch;
    double shards = 0;  // bytes that a rank holds
    double tensors = 0;
    for (const Alike &alike : groups) {
        const Unit &unit = report.model.units[alike.fullest];
        const Answer &answer = *report.answer.units[alike.fullest];
        const double bytes =
            static_cast<double>(bytes_of(unit.type)) * static_cast<double>(alike.units.size());
        const Problem problem{unit.tensors, report.model.ranks, {}};
        const std::optional<std::int64_t> shard = peer.shard(problem, report.options);
        if (!shard) return fmt::format("{:34} has no layout for {}\n", peer.title, alike.name);
        shards += bytes * static_cast<double>(*shard);
        tensors += bytes * static_cast<double>(answer.elements - answer.padding);
    }
    const double buffers = shards * report.model.ranks;
    Line line{.name = std::string(peer.title), .keeps_blocks = peer.keeps_blocks};
    line.padding = tensors > 0 ? buffers / tensors - 1 : 0;
    line.fullest = tensors > 0 ? buffers / tensors : 1;
    line.wire = collectives_per_step * (buffers - shards);
    line.seconds = watch.seconds();
    return to_text(line);
}

}  // namespace

std::string compare(const Report &report) {
    std::string text = fmt::format("{:34} {:>6} {:>10} {:>13} {:>14} {:>9}\n", "layout", "blocks",
                                   "padding", "fullest/mean", "wire/step", "planned");
    for (const Mode mode : {Mode::ragged, Mode::balanced, Mode::uniform, Mode::owner})
        text += ours(report, mode);
    const std::vector<Alike> groups = group_alike(report);
    for (const Peer &peer : peers()) text += theirs(report, groups, peer);
    return text +
           "(fullest: what the fullest rank holds of all buffers; wire: two gathers and a "
           "reduction\nof every buffer, which last as long as its largest shard takes to get to "
           "all; rows:\nblocks of more than one row are cut)\n";
}

}  // namespace vescomm::planner
