// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "schedule/check.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "schedule/symbolic_memory.h"

namespace vescomm::internal {

namespace {

using symbolic::Clock;
using symbolic::Fault;
using symbolic::Memory;
using symbolic::Thread;

constexpr int operations = 2;

// The schedule that a rank executes if these arrays are registered: without the steps whose
// condition is false, and with sources in registered arrays instead of staging buffers.
Schedule resolve(const AnyProblem &problem, const Schedule &schedule, int rank,
                 const CheckedRegistrations &registered) {
    const auto begin = [&](int peer) {
        return problem->collective == Collective::all_to_all_v
                   ? problem.arrays()->exchange.sent_at(peer, rank)
                   : 0;
    };
    Schedule resolved = schedule;
    for (Lane &lane : resolved.lanes) {
        std::erase_if(lane.steps(), [&](const Step &step) {
            return step.when != When::always &&
                   (step.when == When::registered) != registered.contains(rank, step.array);
        });
        for (Step &step : lane.steps())
            for (Place *place : lane.source_places(step))
                if (place->registered != only_here && registered.contains(place->rank, step.array))
                    *place = {place->rank, step.array, begin(place->rank) + place->registered};
    }
    return resolved;
}

std::string rank_text(int rank) {
    return "rank " + std::to_string(rank);
}

// The history of a flag. A wait for a value joins the clock that the raising thread had then.
struct Counter {
    struct Raise {
        std::uint64_t value;
        std::shared_ptr<const Clock> clock;
        bool eager;
    };
    std::vector<Raise> raised;

    // Returns nullptr if the value has not been reached yet.
    const Raise *first(std::uint64_t value) const {
        for (const Raise &raise : raised)
            if (raise.value >= value) return &raise;
        return nullptr;
    }
    std::shared_ptr<const Clock> reached(std::uint64_t value) const {
        const Raise *raise = first(value);
        return raise == nullptr ? nullptr : raise->clock;
    }
};

class Checker {
public:
    Checker(const AnyProblem &problem, std::span<const Schedule> schedules,
            const CheckedRegistrations &registered)
        : problem_(*problem),
          buffers_(problem.buffers()),
          pairwise_flags_(problem.arrays() != nullptr && problem.arrays()->pairwise_flags),
          schedules_(schedules),
          memory_(problem, schedules, registered) {
        for (int rank = 0; rank < problem_.ranks(); ++rank) {
            Rank state;
            state.user.id = threads_++;
            for (std::size_t lane = 0; lane < schedules[rank].lanes.size(); ++lane) {
                state.lanes.push_back({.thread = {.id = threads_++, .clock = {}},
                                       .at = 0,
                                       .credit = {},
                                       .parts = {}});
                for (std::size_t at = 0; at < steps(rank, lane).size(); ++at)
                    if (steps(rank, lane)[at].action == Action::put)
                        state.put_threads[{lane, at}] = threads_++;
            }
            ranks_.push_back(std::move(state));
        }
        for (Rank &rank : ranks_) {
            rank.user.clock.assign(threads_, 0);
            for (LaneState &lane : rank.lanes) lane.thread.clock.assign(threads_, 0);
        }
    }

    void run() {
        for (bool moved = true; moved;) {
            moved = false;
            for (int rank = 0; rank < problem_.ranks(); ++rank) moved |= advance(rank);
        }
        for (int rank = 0; rank < problem_.ranks(); ++rank)
            if (ranks_[rank].operation < operations) throw Fault(why_stuck(rank));
    }

private:
    struct LaneState {
        Thread thread;
        std::size_t at = 0;
        std::shared_ptr<const Clock> credit;  // clock of the credit for an eager put that follows
        std::vector<Clock> parts;  // clocks of the parts of the next put
    };
    struct Rank {
        Thread user;
        std::vector<LaneState> lanes;
        std::vector<Thread> puts;  // those of the current operation
        int operation = 0;
        bool running = false;
        Counter released;
        std::map<std::pair<std::size_t, std::size_t>, int> put_threads;  // (lane, step) -> id
    };

    std::uint64_t value_of(int operation, std::uint32_t value) const {
        return (static_cast<std::uint64_t>(operation + 1) << 32) | value;
    }

    bool advance(int rank) {
        Rank &state = ranks_[rank];
        if (state.operation == operations) return false;
        if (!state.running && !begin(rank)) return false;
        bool moved = false;
        for (bool again = true; again;) {
            again = false;
            for (std::size_t lane = 0; lane < state.lanes.size(); ++lane)
                while (step(rank, lane)) moved = again = true;
        }
        for (std::size_t lane = 0; lane < state.lanes.size(); ++lane)
            if (state.lanes[lane].at < steps(rank, lane).size()) return moved;
        end(rank);
        return true;
    }

    const Lane &lane_of(int rank, std::size_t lane) const { return schedules_[rank].lanes[lane]; }
    const std::vector<Step> &steps(int rank, std::size_t lane) const {
        return lane_of(rank, lane).steps();
    }

    // The caller fills its inputs and starts the operation.
    bool begin(int rank) {
        Rank &state = ranks_[rank];
        const bool writes_slab =
            buffers_ != nullptr && buffers_->per_node &&
            (problem_.collective == Collective::all_gather_v ? buffers_->in_place
                                                             : rank == problem_.root);
        if (writes_slab && !join_releases(rank, state.operation, state.user)) return false;
        state.user.tick();
        memory_.fill_inputs(rank, state.operation, state.user);
        if (problem_.collective == Collective::barrier)
            started_[{rank, state.operation}] = state.user.now();
        for (LaneState &lane : state.lanes) {
            lane.thread.join(state.user.clock);
            lane.at = 0;
        }
        state.running = true;
        return true;
    }

    // The caller finds the operation complete, reads its outputs and releases the slab.
    void end(int rank) {
        Rank &state = ranks_[rank];
        for (const LaneState &lane : state.lanes) {
            if (!lane.parts.empty())
                throw Fault(rank_text(rank) + " puts a part of a put that does not follow");
            state.user.join(lane.thread.clock);
        }
        for (const Thread &put : state.puts) state.user.join(put.clock);
        state.puts.clear();
        state.user.tick();
        memory_.verify_outputs(rank, state.operation, state.user);
        if (problem_.collective == Collective::barrier) verify_barrier(rank);
        state.released.raised.push_back({static_cast<std::uint64_t>(state.operation + 1),
                                         std::make_shared<const Clock>(state.user.clock), false});
        ++state.operation;
        state.running = false;
    }

    void verify_barrier(int rank) {
        for (int peer = 0; peer < problem_.ranks(); ++peer) {
            const auto start = started_.find({peer, ranks_[rank].operation});
            if (start == started_.end() ||
                ranks_[rank].user.clock[ranks_[peer].user.id] < start->second)
                throw Fault(rank_text(rank) + " left the barrier before " + rank_text(peer) +
                            " had come");
        }
    }

    bool join_releases(int rank, int operation, Thread &thread) {
        std::vector<std::shared_ptr<const Clock>> clocks;
        for (const int peer : problem_.nodes.members(problem_.nodes.node_of(rank))) {
            if (operation == 0) continue;
            const auto clock = ranks_[peer].released.reached(operation);
            if (!clock) return false;
            clocks.push_back(clock);
        }
        for (const auto &clock : clocks) thread.join(*clock);
        return true;
    }

    // True if a rank of the node of `rank` has `peer` in its receive mask.
    bool any_local_receives(int rank, int peer) const {
        return std::ranges::any_of(problem_.nodes.members(problem_.nodes.node_of(rank)),
                                   [&](int member) {
                                       const auto &receive_mask = schedules_[member].receive_mask;
                                       if (receive_mask.empty())
                                           throw Fault(rank_text(member) + " has no receive mask");
                                       return receive_mask[peer] != 0;
                                   });
    }

    // Waits until the peer has read the previous message. On this rank that message is complete,
    // because its lane is at its end.
    bool join_previous_message(int rank, const Step &step, int operation, Thread &thread) {
        if (operation == 0 || step.value == 0) return true;
        const Counter *counter = counter_for(step.peer, rank, step.flag);
        const auto clock =
            counter ? counter->reached(value_of(operation - 1, step.value)) : nullptr;
        if (clock) thread.join(*clock);
        return clock != nullptr;
    }

    // One step of a lane; false when it has to wait or is at its end.
    bool step(int rank, std::size_t lane_index) {
        Rank &state = ranks_[rank];
        LaneState &lane = state.lanes[lane_index];
        const auto &list = steps(rank, lane_index);
        if (lane.at == list.size()) return false;
        const Step &step = list[lane.at];
        const auto context = [&] {
            return rank_text(rank) + ", " + describe(lane_of(rank, lane_index), step);
        };
        if (step.flag >= algorithm_flags && step.flag != gate_flag && step.flag != inline_flag &&
            step.flag != pair_flag)
            throw Fault(context() + ": no such flag");
        Thread &thread = lane.thread;
        if (!lane.parts.empty() &&
            (step.action != Action::put || step.to.rank != list[lane.at - 1].to.rank))
            throw Fault(
                context() +
                ": the previous put is a part of a put to the same rank, which must follow");
        if (step.conditional && !any_local_receives(rank, step.peer)) {
            ++lane.at;
            return true;
        }
        switch (step.action) {
            case Action::acquire:
                if (step.peer == whole_node) {
                    if (!join_releases(rank, state.operation, thread)) return false;
                } else if (!join_previous_message(rank, step, state.operation, thread)) {
                    return false;
                }
                break;
            case Action::wait: {
                const Counter *counter = counter_for(step.peer, rank, step.flag);
                const auto *raise =
                    counter ? counter->first(value_of(state.operation, step.value)) : nullptr;
                if (raise == nullptr) return false;
                if (raise->eager != step.eager)
                    throw Fault(context() + ": only one side takes the put for eager");
                // An eager put is sent before the credit arrives; only its writes happen after it.
                if (step.eager) lane.credit = raise->clock;
                else thread.join(*raise->clock);
                break;
            }
            case Action::signal:
                thread.tick();
                if (step.peer != whole_node && !pairwise_flags_ &&
                    problem_.nodes.together(rank, step.peer))
                    throw Fault(context() + ": a signal within a node is for all its ranks");
                raise(step.peer == whole_node ? node_flags_[{rank, step.flag}]
                                              : remote_flags_[{rank, step.peer, step.flag}],
                      step, state.operation, thread, context());
                break;
            case Action::copy:
            case Action::reduce:
                thread.tick();
                memory_.move(rank, lane_of(rank, lane_index), step, thread, thread);
                break;
            case Action::put: {
                if (problem_.nodes.together(rank, step.to.rank))
                    throw Fault(context() + ": a put is for another node");
                thread.tick();
                Thread put{.id = state.put_threads.at({lane_index, lane.at}),
                           .clock = Clock(threads_, 0)};
                put.join(thread.clock);
                put.tick();
                const Thread reader = put;
                if (lane.credit) put.join(*lane.credit);
                memory_.move(rank, lane_of(rank, lane_index), step, reader, put);
                if (step.value == 0) {
                    lane.parts.push_back(put.clock);
                    state.puts.push_back(std::move(put));
                    break;
                }
                for (const Clock &part : std::exchange(lane.parts, {})) put.join(part);
                lane.credit = nullptr;
                raise(remote_flags_[{rank, step.to.rank, step.flag}], step, state.operation, put,
                      context());
                state.puts.push_back(std::move(put));
                break;
            }
        }
        ++lane.at;
        return true;
    }

    void raise(Counter &counter, const Step &step, int operation, const Thread &thread,
               const std::string &context) {
        const std::uint64_t value = value_of(operation, step.value);
        if (!counter.raised.empty() && counter.raised.back().value >= value)
            throw Fault(context + ": the flag does not rise");
        counter.raised.push_back({value, std::make_shared<const Clock>(thread.clock), step.eager});
    }

    const Counter *counter_for(int source, int reader, std::uint32_t flag) const {
        if (!pairwise_flags_ && problem_.nodes.together(source, reader)) {
            const auto found = node_flags_.find({source, flag});
            return found == node_flags_.end() ? nullptr : &found->second;
        }
        const auto found = remote_flags_.find({source, reader, flag});
        return found == remote_flags_.end() ? nullptr : &found->second;
    }

    std::string why_stuck(int rank) const {
        const Rank &state = ranks_[rank];
        for (std::size_t lane = 0; lane < state.lanes.size(); ++lane)
            if (state.running && state.lanes[lane].at < steps(rank, lane).size())
                return rank_text(rank) + " waits for ever in lane " + std::to_string(lane) + ": " +
                       describe(lane_of(rank, lane), steps(rank, lane)[state.lanes[lane].at]);
        return rank_text(rank) + " cannot start operation " + std::to_string(state.operation);
    }

    const Problem &problem_;
    const BufferProblem *const buffers_;  // nullptr: a problem on arrays
    const bool pairwise_flags_;  // ArrayProblem::pairwise_flags
    std::span<const Schedule> schedules_;
    Memory memory_;
    int threads_ = 0;
    std::vector<Rank> ranks_;
    std::map<std::pair<int, std::uint32_t>, Counter> node_flags_;
    std::map<std::tuple<int, int, std::uint32_t>, Counter> remote_flags_;
    std::map<std::pair<int, int>, std::uint32_t> started_;
};

}  // namespace

std::string check(const AnyProblem &problem, std::span<const Schedule> unresolved,
                  const CheckedRegistrations &registered) {
    std::vector<Schedule> schedules;
    for (const Schedule &schedule : unresolved)
        schedules.push_back(
            resolve(problem, schedule, static_cast<int>(schedules.size()), registered));
    if (static_cast<int>(schedules.size()) != problem->ranks())
        return "there are " + std::to_string(schedules.size()) + " schedules for " +
               std::to_string(problem->ranks()) + " ranks";
    try {
        Checker(problem, schedules, registered).run();
    } catch (const Fault &fault) {
        return fault.what();
    }
    return {};
}

}  // namespace vescomm::internal
