// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/schedule.h"

#include <algorithm>
#include <stdexcept>

namespace vescomm {

namespace {

// The flag and the distance in values that keep two phases apart. No algorithm comes near either.
constexpr std::uint32_t gate = 7;
constexpr std::uint32_t phase = 1u << 24;

std::string text(const Place &place) {
    static constexpr const char *names[] = {"source", "buffer", "output", "scratch"};
    return std::string(names[static_cast<int>(place.region)]) + " of " +
           std::to_string(place.rank) + " at " + std::to_string(place.offset);
}

}  // namespace

std::string describe(const Step &step) {
    const std::string count = std::to_string(step.count) + " elements ";
    const std::string flag =
        "flag " + std::to_string(step.flag) + " to " + std::to_string(step.value);
    switch (step.action) {
        case Action::acquire:
            return "acquire the buffer from all of this node";
        case Action::copy:
            return "copy " + count + text(step.from[0]) + " -> " + text(step.to);
        case Action::reduce: {
            std::string sources;
            for (const Place &place : step.from)
                sources += (sources.empty() ? "" : " + ") + text(place);
            return "reduce " + count + sources + " -> " + text(step.to) +
                   (step.finish ? ", scaled" : "");
        }
        case Action::put:
            return "put " + count + text(step.from[0]) + " -> " + text(step.to) + ", then raise " +
                   flag;
        case Action::signal:
            return "raise " + flag +
                   (step.peers.empty() ? " for this node"
                                       : " for rank " + std::to_string(step.peers[0]));
        case Action::wait:
            return "wait for rank " + std::to_string(step.peers[0]) + " to raise " + flag;
    }
    return "unknown step";
}

std::string describe(const Schedule &schedule) {
    std::string text;
    for (std::size_t i = 0; i < schedule.lanes.size(); ++i) {
        text += "lane " + std::to_string(i) + "\n";
        for (const Step &step : schedule.lanes[i].steps()) text += "  " + describe(step) + "\n";
    }
    return text;
}

Schedule then(int rank, Schedule first, const Schedule &second) {
    if (second.scratch > 0 || first.lanes.empty())
        throw std::logic_error("only a schedule without scratch can follow another one");
    first.lanes[0].signal_node(gate, 1);
    for (const Lane &lane : second.lanes) {
        Lane gated;
        gated.wait(rank, gate, 1);
        for (Step step : lane.steps()) {
            if (step.value > 0) step.value += phase;
            gated.steps().push_back(std::move(step));
        }
        first.lanes.push_back(std::move(gated));
    }
    return first;
}

}  // namespace vescomm
