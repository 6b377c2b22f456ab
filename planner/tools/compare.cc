// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Compares the layouts of all modes and of other systems. Zone: set-up.
#include <fmt/format.h>

#include <chrono>
#include <stdexcept>

#include "planner/peers/peers.h"
#include "planner/tools/report.h"

namespace vescomm::planner {
namespace {

// In a training step every unit is gathered twice and reduced once.
constexpr double collectives_per_step = 3;

class Stopwatch {
public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Compared ours(const Report &report, Mode mode) {
    Options options = report.options;
    options.mode = mode;
    Compared line;
    line.name = fmt::format("vescomm {}", name_of(mode));
    try {
        const Stopwatch watch;
        const ModelAnswer answer = plan(report.model, options);
        line.seconds = watch.seconds();
        if (!answer.feasible) {
            line.explanation = answer.explanation;
            return line;
        }
        const auto bytes = static_cast<double>(answer.bytes - answer.padding_bytes);
        line.padding_ratio = bytes > 0 ? static_cast<double>(answer.padding_bytes) / bytes : 0;
        line.fullest_over_mean =
            answer.mean_rank_bytes > 0
                ? static_cast<double>(answer.largest_rank_bytes) / answer.mean_rank_bytes
                : 1;
        line.wire_bytes_per_step = answer.wire_bytes_per_step;
    } catch (const std::invalid_argument &error) {
        line.explanation = error.what();
    }
    return line;
}

Compared theirs(const Report &report, const std::vector<Alike> &groups, const Peer &peer) {
    Compared line;
    line.name = peer.title;
    line.keeps_blocks = peer.keeps_blocks;
    const Stopwatch watch;
    double shards = 0;  // bytes of one rank in all buffers
    double tensors = 0;
    for (const Alike &alike : groups) {
        const Unit &unit = report.model.units[alike.fullest];
        const Answer &answer = *report.answer.units[alike.fullest];
        const double bytes =
            static_cast<double>(bytes_of(unit.type)) * static_cast<double>(alike.units.size());
        const Problem problem{unit.tensors, report.model.ranks, {}};
        const std::optional<std::int64_t> shard = peer.shard(problem, report.options);
        if (!shard) {
            line.explanation = "has no layout for " + printable(alike.name);
            return line;
        }
        shards += bytes * static_cast<double>(*shard);
        tensors += bytes * static_cast<double>(answer.elements - answer.padding);
    }
    const double buffers = shards * report.model.ranks;
    line.padding_ratio = tensors > 0 ? buffers / tensors - 1 : 0;
    line.fullest_over_mean = tensors > 0 ? buffers / tensors : 1;
    line.wire_bytes_per_step = collectives_per_step * (buffers - shards);
    line.seconds = watch.seconds();
    return line;
}

}  // namespace

std::vector<Compared> compare(const Report &report) {
    std::vector<Compared> lines;
    for (const Mode mode : {Mode::ragged, Mode::balanced, Mode::uniform, Mode::owner})
        lines.push_back(ours(report, mode));
    const std::vector<Alike> groups = group_alike(report);
    for (const Peer &peer : peers()) lines.push_back(theirs(report, groups, peer));
    return lines;
}

}  // namespace vescomm::planner
