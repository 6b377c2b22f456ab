// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "simulate/simulate.h"

#include <algorithm>
#include <queue>
#include <string>

#include "base/error.h"
#include "simulate/fabric.h"
#include "simulate/program.h"
#include "simulate/shared_clock.h"

namespace vescomm {

namespace {

std::uint32_t largest_node(const Nodes &nodes) {
    std::size_t largest = 1;
    for (int node = 0; node < nodes.count(); ++node)
        largest = std::max(largest, nodes.members(node).size());
    return static_cast<std::uint32_t>(largest);
}

// What the ranks of the largest node hold of the vector.
double footprint(const Problem &problem, const ElementBytes &bytes) {
    const double slabs = !problem.arrays && problem.per_node ? 1 : largest_node(problem.nodes);
    return slabs * static_cast<double>(problem.elements()) * bytes.element;
}

// Lanes of a rank that can go on, in the order in which the executor comes to them: it goes through
// all lanes again and again.
class Ready {
public:
    void add(std::uint32_t lane) {
        const std::uint64_t pass = lane > last_ ? passes_ : passes_ + 1;
        lanes_.push_back(pass << 32 | lane);
        std::ranges::push_heap(lanes_, std::greater());
    }
    std::uint32_t next() {
        if (lanes_.empty()) return nobody;
        std::ranges::pop_heap(lanes_, std::greater());
        passes_ = lanes_.back() >> 32;
        const auto lane = static_cast<std::uint32_t>(lanes_.back());
        lanes_.pop_back();
        last_ = lane;
        return lane;
    }

private:
    std::vector<std::uint64_t> lanes_;  // a heap of (pass, lane)
    std::uint64_t passes_ = 0;
    std::int64_t last_ = -1;
};

class Simulator {
public:
    Simulator(const Problem &problem, const MakeSchedule &make, const ElementBytes &bytes,
              const Machine &machine)
        : nodes_(problem.nodes),
          machine_(machine),
          speed_(speed_for(problem, bytes, machine)),
          program_(problem, make, bytes),
          fabric_(problem.nodes, machine),
          ranks_(static_cast<std::size_t>(nodes_.ranks())),
          flags_(ranks_.size() * flags_per_rank) {
        result_.ranks.resize(ranks_.size());
        result_.steps = static_cast<std::int64_t>(program_.steps.size());
        for (int node = 0; node < nodes_.count(); ++node)
            cores_.emplace_back(machine.cores, speed_.node);
        for (const Straggler &straggler : machine.stragglers) {
            if (straggler.rank < 0 || straggler.rank >= nodes_.ranks()) continue;
            Rank &rank = ranks_[index(straggler.rank)];
            rank.clock = straggler.late_seconds;
            rank.slower = straggler.slower;
        }
        for (std::uint32_t lane = 0; lane < program_.lanes.size(); ++lane)
            ranks_[index(program_.lanes[lane].rank)].ready.add(lane);
        for (int rank = 0; rank < nodes_.ranks(); ++rank) {
            Rank &state = ranks_[index(rank)];
            state.lanes_left =
                program_.lane_begin[index(rank) + 1] - program_.lane_begin[index(rank)];
            at(state.clock, {.kind = Kind::resume, .rank = rank});
        }
    }

    Simulation run() {
        while (!events_.empty()) {
            const Event event = events_.top();
            events_.pop();
            happen(event);
        }
        for (int rank = 0; rank < nodes_.ranks(); ++rank)
            if (ranks_[index(rank)].lanes_left > 0) throw stuck(rank);
        for (int rank = 0; rank < nodes_.ranks(); ++rank) {
            RankTimes &times = result_.ranks[index(rank)];
            const Rank &state = ranks_[index(rank)];
            times.end = std::max(state.clock, state.last_left);
            times.sending += times.end - state.clock;
            result_.seconds = std::max(result_.seconds, times.end);
        }
        return std::move(result_);
    }

private:
    enum class Kind : std::uint8_t {
        resume,  // a rank goes on
        moved,  // a core of a node has done its work
        seen,  // the neighbours of a rank see its flag
        raised,  // a rank sees a flag of a rank of another node
        arriving,  // the first byte of a put
    };
    struct Event {
        Kind kind;
        std::int32_t rank = 0;  // or the node
        std::uint32_t key = 0;  // flag_key(), or which put, or the version of a clock
        std::uint32_t value = 0;
        double time = 0;
        std::uint64_t order = 0;
        // The first is the one on top.
        bool operator<(const Event &other) const {
            return time != other.time ? time > other.time : order > other.order;
        }
    };
    struct Rank {
        Ready ready;
        std::uint32_t lane = nobody;  // that it is at
        std::uint32_t lanes_left = 0;
        bool idle = false;
        double clock = 0;  // until when its core is taken
        double last_left = 0;  // of its puts
        double slower = 1;
    };
    struct Flag {
        std::uint32_t raised = 0;  // as its rank sees it
        std::uint32_t seen = 0;  // as its neighbours do
        LaneList waiting;
    };
    struct Put {
        int from = 0, to = 0;
        std::uint32_t key = 0, value = 0;
        Message message;
    };

    static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

    void at(double time, Event event) {
        event.time = time;
        event.order = events_made_++;
        events_.push(event);
    }

    void happen(const Event &event) {
        switch (event.kind) {
            case Kind::resume:
                return go_on(event.rank);
            case Kind::moved:
                return moved(event);
            case Kind::seen: {
                Flag &flag = flags_[event.key];
                flag.seen = event.value;
                return wake(flag.waiting, event.time,
                            [&](const SimulatedStep &step) { return step.value <= flag.seen; });
            }
            case Kind::raised: {
                RemoteCounter *counter = program_.counter(event.rank, event.key);
                if (counter == nullptr) return;
                counter->value = std::max(counter->value, event.value);
                return wake(counter->waiting, event.time, [&](const SimulatedStep &step) {
                    return step.value <= counter->value;
                });
            }
            case Kind::arriving: {
                Put &put = puts_[event.key];
                put.message.first = event.time;
                const Message message = fabric_.arrive(put.from, put.to, put.message);
                at(message.last,
                   {.kind = Kind::raised, .rank = put.to, .key = put.key, .value = put.value});
                free_puts_.push_back(event.key);
                return;
            }
        }
    }

    // Work of a core is done, unless the clock has been set anew since.
    void moved(const Event &event) {
        SharedClock &cores = cores_[index(event.rank)];
        if (event.key != cores.version()) return;
        const int rank = cores.end(event.time);
        if (!cores.idle()) set(event.rank, event.time);
        Rank &state = ranks_[index(rank)];
        RankTimes &times = result_.ranks[index(rank)];
        const SimulatedStep &step = program_.steps[program_.lanes[state.lane].at - 1];
        (step.action == Action::copy ? times.copying : times.reducing) += event.time - state.clock;
        state.clock = event.time;
        go_on(rank);
    }
    void set(int node, double now) {
        const SharedClock &cores = cores_[index(node)];
        at(std::max(now, cores.next()),
           {.kind = Kind::moved, .rank = node, .key = cores.version()});
    }

    // Everything that this rank does at its time, until its core is busy or all lanes wait.
    void go_on(int rank) {
        Rank &state = ranks_[index(rank)];
        RankTimes &times = result_.ranks[index(rank)];
        const double now = state.clock;
        for (;;) {
            if (state.lane == nobody) state.lane = state.ready.next();
            if (state.lane == nobody) {
                state.idle = true;
                return;
            }
            SimulatedLane &lane = program_.lanes[state.lane];
            if (lane.at == lane.end) {
                --state.lanes_left;
                state.lane = nobody;
                continue;
            }
            const SimulatedStep &step = program_.steps[lane.at];
            switch (step.action) {
                case Action::wait:
                    if (!reached(rank, step)) {
                        append(waiting(step), state.lane);
                        state.lane = nobody;
                        continue;
                    }
                    [[fallthrough]];
                case Action::acquire:
                    spend(state, times.stepping, machine_.step_seconds);
                    break;
                case Action::signal:
                    signal(rank, step);
                    break;
                case Action::copy:
                case Action::reduce:
                case Action::put:
                    // What is shared is taken in the order of time.
                    if (state.clock > now)
                        return at(state.clock, {.kind = Kind::resume, .rank = rank});
                    if (step.action == Action::put) {
                        put(rank, step);
                        break;
                    }
                    ++lane.at;
                    return move(rank, step);
            }
            ++lane.at;
        }
    }

    static void spend(Rank &state, double &on, double seconds) {
        on += seconds * state.slower;
        state.clock += seconds * state.slower;
    }

    bool reached(int rank, const SimulatedStep &step) const {
        if (step.remote) return program_.counters[index(step.peer)].value >= step.value;
        const Flag &flag = flags_[flag_key(step.peer, step.flag)];
        return (step.peer == rank ? flag.raised : flag.seen) >= step.value;
    }
    LaneList &waiting(const SimulatedStep &step) {
        return step.remote ? program_.counters[index(step.peer)].waiting
                           : flags_[flag_key(step.peer, step.flag)].waiting;
    }

    void signal(int rank, const SimulatedStep &step) {
        Rank &state = ranks_[index(rank)];
        RankTimes &times = result_.ranks[index(rank)];
        const std::uint32_t key = flag_key(rank, step.flag);
        if (step.peer != whole_node) {
            spend(state, times.sending, machine_.put_step_seconds);
            return at(state.clock + machine_.signal_seconds,
                      {.kind = Kind::raised, .rank = step.peer, .key = key, .value = step.value});
        }
        spend(state, times.stepping, machine_.step_seconds);
        Flag &flag = flags_[key];
        flag.raised = step.value;
        // Its own lanes go on at once; they are in the list of all that wait for it.
        LaneList others;
        while (flag.waiting.first != nobody) {
            const std::uint32_t lane = take(flag.waiting);
            const bool own = program_.lanes[lane].rank == rank;
            if (own && step_of(lane).value <= flag.raised) state.ready.add(lane);
            else append(others, lane);
        }
        flag.waiting = others;
        at(state.clock + flag_seconds(rank), {.kind = Kind::seen, .key = key, .value = step.value});
    }
    // Ranks that share cores see a flag when it is their turn.
    double flag_seconds(int rank) const {
        const auto locals = nodes_.members(nodes_.node_of(rank)).size();
        const auto cores = static_cast<std::size_t>(machine_.cores);
        const std::size_t turns = cores == 0 ? 0 : (locals + cores - 1) / cores - 1;
        return machine_.flag_seconds + machine_.switch_seconds * static_cast<double>(turns);
    }

    void put(int rank, const SimulatedStep &step) {
        Rank &state = ranks_[index(rank)];
        const double by_core =
            machine_.put_core_bytes > 0 ? step.bytes / machine_.put_core_bytes : 0;
        spend(state, result_.ranks[index(rank)].sending, machine_.put_step_seconds + by_core);
        Message message = fabric_.leave(rank, step.peer, state.clock, step.bytes);
        state.last_left = std::max(state.last_left, message.last);
        message.last += machine_.put_seconds;
        std::uint32_t number = static_cast<std::uint32_t>(puts_.size());
        if (free_puts_.empty()) {
            puts_.emplace_back();
        } else {
            number = free_puts_.back();
            free_puts_.pop_back();
        }
        puts_[number] = {rank, step.peer, flag_key(rank, step.flag), step.value, message};
        at(message.first + machine_.put_seconds, {.kind = Kind::arriving, .key = number});
    }

    void move(int rank, const SimulatedStep &step) {
        const Rank &state = ranks_[index(rank)];
        const double rate = step.action == Action::copy ? speed_.copy : speed_.reduce;
        const double moving = rate > 0 ? step.bytes / rate : 0;
        const double seconds = (machine_.step_seconds + moving) * state.slower;
        const int node = nodes_.node_of(rank);
        cores_[index(node)].begin(state.clock, rank, seconds,
                                  seconds > 0 ? step.bytes / seconds : 0);
        set(node, state.clock);
    }

    // Lanes that waited go on where what they wait for has come.
    template <typename Reached>
    void wake(LaneList &waiting, double now, const Reached &reached) {
        LaneList all = waiting;
        waiting = {};
        for (std::uint32_t lane = take(all); lane != nobody; lane = take(all)) {
            const int rank = program_.lanes[lane].rank;
            if (!reached(step_of(lane))) {
                append(waiting, lane);
                continue;
            }
            Rank &state = ranks_[index(rank)];
            state.ready.add(lane);
            if (!state.idle) continue;
            state.idle = false;
            if (state.clock < now) {
                result_.ranks[index(rank)].waiting += now - state.clock;
                state.clock = now;
            }
            at(state.clock, {.kind = Kind::resume, .rank = rank});
        }
    }
    const SimulatedStep &step_of(std::uint32_t lane) const {
        return program_.steps[program_.lanes[lane].at];
    }

    void append(LaneList &list, std::uint32_t lane) {
        program_.lanes[lane].next = nobody;
        (list.first == nobody ? list.first : program_.lanes[list.last].next) = lane;
        list.last = lane;
    }
    std::uint32_t take(LaneList &list) {
        const std::uint32_t lane = list.first;
        if (lane != nobody) list.first = program_.lanes[lane].next;
        return lane;
    }

    Error stuck(int rank) const {
        for (std::uint32_t lane = program_.lane_begin[index(rank)];; ++lane) {
            const SimulatedLane &its = program_.lanes[lane];
            if (its.at < its.end)
                return {VESCOMM_ERROR_INTERNAL,
                        "rank " + std::to_string(rank) + " waits for ever in lane " +
                            std::to_string(lane - program_.lane_begin[index(rank)]) + ", with " +
                            std::to_string(its.end - its.at) + " steps to go"};
        }
    }

    const Nodes &nodes_;
    const Machine &machine_;
    const MemorySpeed speed_;
    Program program_;
    Fabric fabric_;
    std::vector<Rank> ranks_;
    std::vector<Flag> flags_;
    std::vector<SharedClock> cores_;  // of each node
    std::priority_queue<Event> events_;
    std::uint64_t events_made_ = 0;
    std::vector<Put> puts_;
    std::vector<std::uint32_t> free_puts_;
    Simulation result_;
};

}  // namespace

const MemorySpeed &speed_for(const Problem &problem, const ElementBytes &bytes,
                             const Machine &machine) {
    return footprint(problem, bytes) <= machine.cache_bytes ? machine.in_cache : machine.in_memory;
}

Simulation simulate(const Problem &problem, const MakeSchedule &make, const ElementBytes &bytes,
                    const Machine &machine) {
    return Simulator(problem, make, bytes, machine).run();
}

}  // namespace vescomm
