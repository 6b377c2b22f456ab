// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/schedule.h"

#include <algorithm>
#include <stdexcept>

namespace vescomm::internal {

namespace {

// Offset of the flag values of a second schedule. A schedule whose flags count further has more
// steps than memory holds.
constexpr std::uint32_t phase = 1u << 24;

void require_within_phase(const Schedule &schedule) {
    for (const Lane &lane : schedule.lanes)
        for (const Step &step : lane.steps())
            if (step.value >= phase)
                throw std::logic_error(
                    "a flag of a schedule before or after another one counts to " +
                    std::to_string(step.value) + ", and may count to " + std::to_string(phase - 1));
}

}  // namespace

void Lane::reduce(std::span<const Place> from, Place to, std::int64_t count, bool finish) {
    if (count == 0) return;
    steps_.push_back({.action = Action::reduce,
                      .finish = finish,
                      .array = array_,
                      .count = count,
                      .to = to,
                      .from = from[0],
                      .more_begin = static_cast<std::uint32_t>(more_.size()),
                      .more = static_cast<std::uint32_t>(from.size() - 1)});
    more_.insert(more_.end(), from.begin() + 1, from.end());
}

std::vector<Place> Lane::sources(const Step &step) const {
    if (!step.moves()) return {};
    std::vector<Place> all{step.from};
    const auto others = more(step);
    all.insert(all.end(), others.begin(), others.end());
    return all;
}

std::vector<Place *> Lane::source_places(Step &step) {
    if (!step.moves()) return {};
    std::vector<Place *> all{&step.from};
    for (std::uint32_t i = 0; i < step.more; ++i) all.push_back(&more_[step.more_begin + i]);
    return all;
}

std::string describe(const Place &place) {
    static constexpr const char *names[] = {"source",  "buffer",       "output",
                                            "staging", "partial sums", "inline data"};
    static_assert(std::size(names) == regions);
    return std::string(names[static_cast<int>(place.region)]) + " of " +
           std::to_string(place.rank) + " at " + std::to_string(place.offset) +
           (place.registered == only_here
                ? ""
                : " (or at " + std::to_string(place.registered) + " of its registered array)");
}

std::string describe(const Lane &lane, const Step &step) {
    const std::string count = std::to_string(step.count) + " elements ";
    const std::string flag =
        "flag " + std::to_string(step.flag) + " to " + std::to_string(step.value);
    const std::string condition =
        step.conditional                ? ", if a rank of this node receives from it"
        : step.when == When::staged     ? ", unless the array of this rank is registered"
        : step.when == When::registered ? ", if the array of this rank is registered"
                                        : "";
    switch (step.action) {
        case Action::acquire:
            return step.peer == whole_node ? "acquire the memory from all of this node"
                                           : "wait for the previous message, to or from rank " +
                                                 std::to_string(step.peer);
        case Action::copy:
            return "copy " + count + describe(step.from) + " -> " + describe(step.to) + condition;
        case Action::reduce: {
            std::string sources = describe(step.from);
            for (const Place &place : lane.more(step)) sources += " + " + describe(place);
            return "reduce " + count + sources + " -> " + describe(step.to) +
                   (step.finish ? ", scaled" : "");
        }
        case Action::put:
            return "put " + count + describe(step.from) + " -> " + describe(step.to) +
                   (step.value == 0 ? ", with the next put" : ", then raise " + flag);
        case Action::signal:
            return "raise " + flag +
                   (step.peer == whole_node ? " for this node"
                                            : " for rank " + std::to_string(step.peer)) +
                   (step.eager ? ", without a message" : "") + condition;
        case Action::wait:
            return (step.eager ? "let the next put wait for rank " : "wait for rank ") +
                   std::to_string(step.peer) + " to raise " + flag + condition;
    }
    return "unknown step";
}

std::string describe(const Schedule &schedule) {
    std::string text;
    for (std::size_t i = 0; i < schedule.lanes.size(); ++i) {
        const Lane &lane = schedule.lanes[i];
        text += "lane " + std::to_string(i) + "\n";
        for (const Step &step : lane.steps()) text += "  " + describe(lane, step) + "\n";
    }
    return text;
}

Schedule join_schedules(int rank, Schedule first, const Schedule &second) {
    if (first.lanes.empty()) throw std::logic_error("a schedule follows one that has lanes");
    require_within_phase(first);
    require_within_phase(second);
    first.lanes[0].signal_node(gate_flag, 1);
    for (Lane lane : second.lanes) {
        for (Step &step : lane.steps())
            if (step.value > 0) step.value += phase;
        Step gated{.action = Action::wait, .peer = rank, .flag = gate_flag, .value = 1};
        lane.steps().insert(lane.steps().begin(), gated);
        first.lanes.push_back(std::move(lane));
    }
    first.staging = std::max(first.staging, second.staging);
    first.inlined = std::max(first.inlined, second.inlined);
    first.partial = std::max(first.partial, second.partial);
    return first;
}

}  // namespace vescomm::internal
