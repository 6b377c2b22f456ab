// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "simulate/program.h"

#include <algorithm>
#include <utility>

#include "schedule/long_step.h"

namespace vescomm::internal {

namespace {

double bytes_of(const ElementBytes &bytes, Region region) {
    return region == Region::partial ? bytes.partial : bytes.element;
}

// Bytes that a step reads and writes; for a put, the bytes it sends.
double bytes_of(const ElementBytes &bytes, const Lane &lane, const Step &step) {
    if (!step.moves()) return 0;
    double each = bytes_of(bytes, step.from.region);
    if (step.action != Action::put) each += bytes_of(bytes, step.to.region);
    for (const Place &place : lane.more(step)) each += bytes_of(bytes, place.region);
    return each * static_cast<double>(step.count);
}

// True if a step reads memory that another rank has written, or writes memory of another rank: its
// cache lines come from the cache of that rank. A few inline bytes arrive in the cache line of
// their flag and need no other line (schedule/common/inline.h).
bool fetches(const ElementBytes &bytes, int rank, const Lane &lane, const Step &step) {
    constexpr std::int64_t inline_bytes = 48;
    if (step.action != Action::copy && step.action != Action::reduce) return false;
    const bool few = step.count * bytes.element <= inline_bytes;
    const auto others = [rank, few](const Place &place) {
        return place.rank != rank &&
               !(few && (place.region == Region::inlined || place.region == Region::staging));
    };
    return others(step.to) || others(step.from) || std::ranges::any_of(lane.more(step), others);
}

// True if other lanes of the rank continue after a step (long_step.h).
bool is_long(const ElementBytes &bytes, const Step &step) {
    if (step.action != Action::copy && step.action != Action::reduce) return false;
    return bytes_of(bytes, step.to.region) * static_cast<double>(step.count) >=
           static_cast<double>(min_long_bytes);
}

}  // namespace

SimulatedProgram::SimulatedProgram(const Nodes &nodes, const MakeSchedule &make,
                                   const ElementBytes &bytes) {
    lane_begin.push_back(0);
    counter_begin.push_back(0);
    std::vector<std::uint32_t> keys;
    std::vector<std::vector<std::uint8_t>> receive_mask;
    for (int rank = 0; rank < nodes.ranks(); ++rank) {
        Schedule schedule = make(rank);
        const std::size_t first_step = steps.size();
        keys.clear();
        for (const Lane &lane : schedule.lanes) {
            const auto begin = static_cast<std::uint32_t>(steps.size());
            double parts = 0;  // bytes of puts without a flag: they belong to the next put with one
            for (const Step &step : lane.steps()) {
                if (step.when == When::registered) continue;  // arrays are assumed to be private
                if (step.action == Action::put && step.value == 0) {
                    parts += bytes_of(bytes, lane, step);
                    continue;
                }
                SimulatedStep &made = steps.emplace_back();
                made.bytes = bytes_of(bytes, lane, step) + std::exchange(parts, 0);
                made.value = step.value;
                made.peer = step.peer;
                made.action = step.action;
                made.eager = step.eager;
                made.conditional = step.conditional;
                made.fetches = fetches(bytes, rank, lane, step);
                made.long_running = nodes.count() > 1 && is_long(bytes, step);
                made.flag = static_cast<std::uint8_t>(step.flag);
                made.remote = step.action == Action::wait && !nodes.together(rank, step.peer);
                if (made.remote) keys.push_back(flag_key(step.peer, step.flag));
            }
            lanes.push_back(
                {.at = begin, .end = static_cast<std::uint32_t>(steps.size()), .rank = rank});
        }
        std::ranges::sort(keys);
        keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
        for (const std::uint32_t key : keys)
            counters.push_back({.key = key, .value = 0, .waiting = {}});
        for (std::size_t i = first_step; i < steps.size(); ++i) {
            if (!steps[i].remote) continue;
            const auto found =
                std::ranges::lower_bound(keys, flag_key(steps[i].peer, steps[i].flag));
            steps[i].peer = static_cast<std::int32_t>(
                counter_begin.back() + static_cast<std::size_t>(found - keys.begin()));
        }
        lane_begin.push_back(static_cast<std::uint32_t>(lanes.size()));
        counter_begin.push_back(static_cast<std::uint32_t>(counters.size()));
        receive_mask.push_back(std::move(schedule.receive_mask));
    }
    drop_unused_steps(nodes, receive_mask);
}

// Turns each conditional step that is not needed into an `acquire`, which costs the time to check
// the receive mask.
void SimulatedProgram::drop_unused_steps(
    const Nodes &nodes, const std::vector<std::vector<std::uint8_t>> &receive_mask) {
    for (const SimulatedLane &lane : lanes) {
        for (std::uint32_t i = lane.at; i < lane.end; ++i) {
            SimulatedStep &step = steps[i];
            if (!step.conditional) continue;
            const std::size_t peer =
                step.remote ? counters[static_cast<std::size_t>(step.peer)].key / flags_per_rank
                            : static_cast<std::size_t>(step.peer);
            const auto wanted = [&](int member) {
                return receive_mask[static_cast<std::size_t>(member)][peer] != 0;
            };
            if (std::ranges::any_of(nodes.members(nodes.node_of(lane.rank)), wanted)) continue;
            step.action = Action::acquire;
            step.peer = whole_node;
            step.remote = false;
        }
    }
}

RemoteCounter *SimulatedProgram::counter(int reader, std::uint32_t key) {
    const auto begin = counters.begin() + counter_begin[static_cast<std::size_t>(reader)];
    const auto end = counters.begin() + counter_begin[static_cast<std::size_t>(reader) + 1];
    const auto found = std::lower_bound(
        begin, end, key,
        [](const RemoteCounter &counter, std::uint32_t value) { return counter.key < value; });
    return found != end && found->key == key ? &*found : nullptr;
}

std::string SimulatedProgram::stuck(int rank) const {
    const std::uint32_t first = lane_begin[static_cast<std::size_t>(rank)];
    std::uint32_t lane = first;
    while (lanes[lane].at == lanes[lane].end) ++lane;
    return "rank " + std::to_string(rank) + " waits for ever in lane " +
           std::to_string(lane - first) + ", with " +
           std::to_string(lanes[lane].end - lanes[lane].at) + " steps to go";
}

}  // namespace vescomm::internal
