// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "execute/operation.h"

#include <algorithm>

#include "base/deadline.h"
#include "base/error.h"
#include "base/types.h"
#include "execute/kernels.h"

namespace vescomm {

namespace {

// Below this a look at the clock would cost more than it tells.
constexpr std::uint64_t worth_timing = 16 * 1024;

}  // namespace

Operation::Operation(const Schedule &schedule, const Bindings &bindings, Counters &counters)
    : bindings_(bindings), counters_(counters) {
    const auto members = bindings_.nodes.members(bindings_.nodes.node_of(bindings_.rank));
    locals_.assign(members.begin(), members.end());
    for (const Lane &lane : schedule.lanes) {
        BoundLane &bound = lanes_.emplace_back();
        for (const Step &step : lane.steps()) bound.steps.push_back(bind(step));
        bound.at = bound.steps.size();
    }
}

const RegionBinding &Operation::binding(Region region) const {
    switch (region) {
        case Region::source:
            return bindings_.source;
        case Region::buffer:
            return bindings_.buffer;
        case Region::output:
            return bindings_.output;
        case Region::scratch:
            break;
    }
    return bindings_.scratch;
}

std::byte *Operation::pointer(const Place &place) const {
    const RegionBinding &region = binding(place.region);
    const auto bytes = static_cast<std::size_t>(place.offset) * size_of(region.type);
    if (!region.mapping) return region.own + bytes;
    return region.mapping->base(place.rank) + region.offset_bytes + bytes;
}

Operation::BoundStep Operation::bind(const Step &step) const {
    BoundStep bound{.action = step.action,
                    .value = step.value,
                    .signal = {bindings_.channel, step.flag},
                    .count = static_cast<std::size_t>(step.count)};
    switch (step.action) {
        case Action::acquire:
            bound.transport = bindings_.home;
            bound.signal = {bindings_.release_channel, 0};
            break;
        case Action::signal:
        case Action::wait:
            bound.peer = step.peers.empty() ? bindings_.rank : step.peers[0];
            bound.transport = bindings_.transports[bound.peer];
            break;
        case Action::copy:
            bound.to = pointer(step.to);
            bound.from = {pointer(step.from[0])};
            bound.to_type = binding(step.to.region).type;
            bound.from_type = binding(step.from[0].region).type;
            bound.bytes = bound.count * size_of(bound.to_type);
            if (!can_convert(bound.to_type, bound.from_type))
                throw Error(VESCOMM_ERROR_UNSUPPORTED,
                            "there is no conversion from " + name_of_type(bound.from_type) +
                                " to " + name_of_type(bound.to_type) +
                                "; f32 and f64 convert to and from every float");
            break;
        case Action::reduce:
            bound.to = pointer(step.to);
            bound.to_type = binding(step.to.region).type;
            bound.from_type = bindings_.buffer.type;
            bound.divisor = step.finish ? bindings_.divisor : 1;
            for (const Place &place : step.from)
                (place.region == Region::scratch ? bound.partials : bound.from)
                    .push_back(pointer(place));
            bound.bytes =
                bound.count * (bound.from.size() * size_of(bound.from_type) +
                               bound.partials.size() * size_of(accumulator_of(bound.from_type)));
            if (!can_reduce(bound.to_type, bound.from_type))
                throw Error(VESCOMM_ERROR_UNSUPPORTED,
                            "cannot reduce " + name_of_type(bound.from_type) + " into " +
                                name_of_type(bound.to_type) + "; use " +
                                name_of_type(bound.from_type) + " or " +
                                name_of_type(accumulator_of(bound.from_type)));
            break;
        case Action::put: {
            const RegionBinding &target = binding(step.to.region);
            bound.peer = step.to.rank;
            bound.transport = bindings_.transports[bound.peer];
            bound.from = {pointer(step.from[0])};
            bound.memory = target.memory;
            const auto size = size_of(target.type);
            bound.offset_bytes =
                target.offset_bytes + static_cast<std::uint64_t>(step.to.offset) * size;
            bound.bytes = bound.count * size;
            break;
        }
    }
    return bound;
}

void Operation::start(std::uint64_t releases) noexcept {
    ++runs_;
    releases_ = releases;
    for (BoundLane &lane : lanes_) lane.at = 0;
    counters_.operations.fetch_add(1, std::memory_order_relaxed);
}

bool Operation::advance() noexcept {
    bool moved = false;
    for (bool again = true; again;) {
        again = false;
        for (BoundLane &lane : lanes_) {
            while (lane.at < lane.steps.size() && ready(lane.steps[lane.at])) {
                execute(lane.steps[lane.at]);
                ++lane.at;
                again = true;
            }
        }
        moved |= again;
        // Only lanes that meet through this rank's own flags can move one another.
        if (lanes_.size() == 1) break;
    }
    return moved;
}

bool Operation::complete() const noexcept {
    for (const BoundLane &lane : lanes_)
        if (lane.at < lane.steps.size()) return false;
    return puts_pending_.load(std::memory_order_acquire) == 0;
}

bool Operation::released_by(int peer) const noexcept {
    return bindings_.home->signalled(peer, {bindings_.release_channel, 0}) >= releases_;
}

bool Operation::ready(const BoundStep &step) const noexcept {
    if (step.action == Action::wait)
        return step.transport->signalled(step.peer, step.signal) >= at_this_run(step.value);
    if (step.action == Action::acquire)
        return std::all_of(locals_.begin(), locals_.end(),
                           [this](int peer) { return released_by(peer); });
    return true;
}

void Operation::execute(const BoundStep &step) noexcept {
    switch (step.action) {
        case Action::acquire:
        case Action::wait:
            return;
        case Action::signal:
            step.transport->signal(step.peer, step.signal, at_this_run(step.value));
            return;
        case Action::put:
            puts_pending_.fetch_add(1, std::memory_order_relaxed);
            counters_.bytes_sent.fetch_add(step.bytes, std::memory_order_relaxed);
            step.transport->put({.peer = step.peer,
                                 .from = static_cast<const std::byte *>(step.from[0]),
                                 .memory = step.memory,
                                 .offset = step.offset_bytes,
                                 .bytes = step.bytes,
                                 .signal = step.signal,
                                 .value = at_this_run(step.value),
                                 .pending = &puts_pending_});
            return;
        case Action::copy:
        case Action::reduce:
            break;
    }
    const bool timed = step.bytes >= worth_timing;
    const auto begin = timed ? Clock::now() : Clock::time_point{};
    if (step.action == Action::copy) {
        kernels().convert(step.to, step.to_type, step.from[0], step.from_type, step.count);
        counters_.bytes_written.fetch_add(step.bytes, std::memory_order_relaxed);
    } else {
        reduce(step);
        counters_.bytes_reduced.fetch_add(step.bytes, std::memory_order_relaxed);
    }
    if (timed)
        counters_.busy_seconds.fetch_add(
            std::chrono::duration<double>(Clock::now() - begin).count(), std::memory_order_relaxed);
}

// Everyone's contribution in the order of ranks, then other nodes' partial sums in the order of
// nodes.
void Operation::reduce(const BoundStep &step) noexcept {
    kernels().reduce({.divisor = step.divisor}, step.from, step.from_type, step.partials, step.to,
                     step.to_type, step.count);
}

std::vector<int> Operation::waiting_for() const {
    std::vector<int> peers;
    for (const BoundLane &lane : lanes_) {
        if (lane.at == lane.steps.size()) continue;
        const BoundStep &step = lane.steps[lane.at];
        if (step.action == Action::wait) peers.push_back(step.peer);
        if (step.action == Action::acquire)
            for (const int peer : locals_)
                if (!released_by(peer)) peers.push_back(peer);
    }
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    std::erase(peers, bindings_.rank);
    return peers;
}

}  // namespace vescomm
