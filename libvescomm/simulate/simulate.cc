// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "simulate/simulate.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "simulate/event_queue.h"
#include "simulate/fabric.h"
#include "simulate/hosts.h"
#include "simulate/packets.h"
#include "simulate/program.h"
#include "simulate/simulated_rank.h"

namespace vescomm::internal {

namespace {

// If cores copy, a put is simulated in chunks of this size, in at most this many chunks.
constexpr double chunk_bytes = 64 << 10;
constexpr double max_chunks = 8;

class Simulator {
public:
    Simulator(const AnyProblem &problem, const MakeSchedule &make, const ElementBytes &bytes,
              const Machine &machine)
        : nodes_(problem->nodes),
          machine_(machine),
          speed_(speed_for(problem, bytes, machine)),
          hosts_(nodes_, machine, speed_.node),
          program_(problem->nodes, make, bytes),
          fabric_(problem->nodes, machine),
          ranks_(static_cast<std::size_t>(nodes_.ranks())),
          flags_(ranks_.size() * flags_per_rank) {
        result_.ranks.resize(ranks_.size());
        result_.steps = static_cast<std::int64_t>(program_.steps.size());
        for (const Straggler &straggler : machine.stragglers) {
            if (straggler.rank < 0 || straggler.rank >= nodes_.ranks()) continue;
            SimulatedRank &rank = ranks_[index(straggler.rank)];
            rank.clock = straggler.late_seconds;
            rank.slower = straggler.slower;
        }
        for (std::uint32_t lane = 0; lane < program_.lanes.size(); ++lane)
            ranks_[index(program_.lanes[lane].rank)].ready.add(lane);
        for (int rank = 0; rank < nodes_.ranks(); ++rank) {
            SimulatedRank &state = ranks_[index(rank)];
            state.lanes_left =
                program_.lane_begin[index(rank) + 1] - program_.lane_begin[index(rank)];
            // A call on arrays first looks up its operation.
            state.spend(result_.ranks[index(rank)].stepping,
                        machine_.call_seconds * (problem.arrays() != nullptr ? 2 : 1));
            events_.add(state.clock, {.kind = EventKind::resume, .rank = rank});
        }
    }

    Simulation run() {
        while (!events_.empty()) handle(events_.next());
        for (int rank = 0; rank < nodes_.ranks(); ++rank)
            if (ranks_[index(rank)].lanes_left > 0)
                throw Error(VESCOMM_ERROR_INTERNAL, program_.stuck(rank));
        for (int rank = 0; rank < nodes_.ranks(); ++rank) {
            RankTimes &times = result_.ranks[index(rank)];
            const SimulatedRank &state = ranks_[index(rank)];
            times.end = std::max(state.clock, state.last_left);
            times.sending += times.end - state.clock;
            result_.seconds = std::max(result_.seconds, times.end);
        }
        return std::move(result_);
    }

private:
    static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

    void handle(const Event &event) {
        switch (event.kind) {
            case EventKind::resume:
                return advance(event.rank);
            case EventKind::worked:
                return worked(event);
            case EventKind::seen: {
                LocalFlag &flag = flags_[event.key];
                flag.seen = event.value;
                return wake(flag.waiting, event.time,
                            [&](const SimulatedStep &step) { return step.value <= flag.seen; });
            }
            case EventKind::arriving: {
                Packet &packet = packets_[event.key];
                packet.message.first = event.time;
                packet.message = fabric_.arrive(packet.from, packet.to, packet.message);
                return events_.add(packet.message.last + hosts_.look_seconds(packet.to),
                                   {.kind = EventKind::arrived, .key = event.key});
            }
            case EventKind::arrived: {
                SimulatedRank &state = ranks_[index(packets_[event.key].to)];
                state.inbox.append(packets_, event.key);
                return wake_rank(packets_[event.key].to, event.time);
            }
        }
    }

    // Handles the end of work of a core. The event is stale if the version of the clock has
    // changed.
    void worked(const Event &event) {
        SharedClock &cores = hosts_.cores(event.rank);
        if (event.key != cores.version()) return;
        const int rank = cores.end(event.time);
        if (!cores.idle()) set(event.rank, event.time);
        SimulatedRank &state = ranks_[index(rank)];
        RankTimes &times = result_.ranks[index(rank)];
        const double seconds = event.time - state.clock;
        state.clock = event.time;
        switch (state.work) {
            case Work::sending:
                times.sending += seconds;
                send_packet(state, state.packet);
                break;
            case Work::receiving:
                times.receiving += seconds;
                receive_packet(rank, state.packet);
                break;
            default: {
                const SimulatedStep &step = program_.steps[program_.lanes[state.lane].at - 1];
                (step.action == Action::copy ? times.copying : times.reducing) += seconds;
                if (step.long_running) state.ready.add(std::exchange(state.lane, no_index));
            }
        }
        state.work = Work::none;
        advance(rank);
    }
    void begin(int rank, Work work, double seconds, double memory) {
        SimulatedRank &state = ranks_[index(rank)];
        state.work = work;
        const int host = hosts_.host_of(rank);
        hosts_.cores(host).begin(state.clock, rank, seconds, memory);
        set(host, state.clock);
    }
    void set(int host, double now) {
        const SharedClock &cores = hosts_.cores(host);
        events_.add(std::max(now, cores.next()),
                    {.kind = EventKind::worked, .rank = host, .key = cores.version()});
    }

    // Advances a rank until its core is busy, its clock moves, or all its lanes wait.
    void advance(int rank) {
        SimulatedRank &state = ranks_[index(rank)];
        RankTimes &times = result_.ranks[index(rank)];
        const double now = state.clock;
        for (;;) {
            if (state.lanes_left == 0 && state.outbox.empty()) {
                // Finished. Packets that still arrive belong to the next operation.
                state.idle = true;
                return;
            }
            if (!state.flag_arrived && (!state.inbox.empty() || !state.outbox.empty())) {
                // Ranks use shared links and cores in the order of time.
                if (state.clock > now)
                    return events_.add(state.clock, {.kind = EventKind::resume, .rank = rank});
                if (move_packets(rank)) return;
                continue;
            }
            if (state.lane == no_index) state.lane = state.ready.next();
            if (state.lane == no_index) {
                if (std::exchange(state.flag_arrived, false)) continue;
                state.idle = true;
                return;
            }
            SimulatedLane &lane = program_.lanes[state.lane];
            if (lane.at == lane.end) {
                --state.lanes_left;
                state.lane = no_index;
                continue;
            }
            const SimulatedStep &step = program_.steps[lane.at];
            switch (step.action) {
                case Action::wait:
                    // An eager wait does not wait: the eager put after it waits at the receiver.
                    if (!step.eager && !reached(rank, step)) {
                        waiting(step).append(program_.lanes, state.lane);
                        state.lane = no_index;
                        continue;
                    }
                    [[fallthrough]];
                case Action::acquire:
                    state.spend(times.stepping, machine_.step_seconds);
                    break;
                case Action::signal:
                    if (step.peer == whole_node) signal_node(rank, step);
                    else if (step.eager) expect(rank, step);
                    else push(rank, step, nullptr);
                    break;
                case Action::put:
                    push(rank, step,
                         lane.at > 0 && program_.steps[lane.at - 1].eager
                             ? &program_.steps[lane.at - 1]
                             : nullptr);
                    break;
                case Action::copy:
                case Action::reduce:
                    if (state.clock > now)
                        return events_.add(state.clock, {.kind = EventKind::resume, .rank = rank});
                    ++lane.at;
                    state.flag_arrived = false;
                    return move(rank, step);
            }
            ++lane.at;
        }
    }

    bool reached(int rank, const SimulatedStep &step) const {
        if (step.remote) return program_.counters[index(step.peer)].value >= step.value;
        const LocalFlag &flag = flags_[flag_key(step.peer, step.flag)];
        return (step.peer == rank ? flag.raised : flag.seen) >= step.value;
    }
    IndexList &waiting(const SimulatedStep &step) {
        return step.remote ? program_.counters[index(step.peer)].waiting
                           : flags_[flag_key(step.peer, step.flag)].waiting;
    }

    void signal_node(int rank, const SimulatedStep &step) {
        SimulatedRank &state = ranks_[index(rank)];
        const std::uint32_t key = flag_key(rank, step.flag);
        state.spend(result_.ranks[index(rank)].stepping, machine_.step_seconds);
        LocalFlag &flag = flags_[key];
        flag.raised = step.value;
        // Lanes of this rank continue at once. Lanes of local peers stay in the list.
        IndexList others;
        while (!flag.waiting.empty()) {
            const std::uint32_t lane = flag.waiting.take(program_.lanes);
            const bool own = program_.lanes[lane].rank == rank;
            if (own && step_of(lane).value <= flag.raised) state.ready.add(lane);
            else others.append(program_.lanes, lane);
        }
        flag.waiting = others;
        events_.add(state.clock + machine_.flag_seconds + hosts_.look_seconds(rank),
                    {.kind = EventKind::seen, .key = key, .value = step.value});
    }

    // ---- packets ----

    // Adds a put or a signal to the outbox. If cores copy, a put is split into chunks: the receiver
    // receives the first chunks while the sender sends the last.
    void push(int rank, const SimulatedStep &step, const SimulatedStep *eager_wait) {
        int chunks = 1;
        if (machine_.put_core_bytes > 0)
            chunks = static_cast<int>(std::clamp(step.bytes / chunk_bytes, 1.0, max_chunks));
        for (int chunk = 0; chunk < chunks; ++chunk) {
            const std::uint32_t number = packets_.make();
            Packet &packet = packets_[number];
            packet.from = rank;
            packet.to = step.peer;
            packet.signal = step.action == Action::signal;
            packet.first = chunk == 0;
            packet.last = chunk + 1 == chunks;
            packet.key = flag_key(rank, step.flag);
            packet.value = step.value;
            packet.bytes = step.bytes / chunks;
            if (eager_wait != nullptr) {
                packet.counter = static_cast<std::uint32_t>(eager_wait->peer);
                packet.expected = eager_wait->value;
            }
            ranks_[index(rank)].outbox.append(packets_, number);
        }
    }

    // Receives or sends the next packet. Returns true if a core is busy with it.
    bool move_packets(int rank) {
        SimulatedRank &state = ranks_[index(rank)];
        RankTimes &times = result_.ranks[index(rank)];
        const bool receive = !state.inbox.empty() &&
                             (state.outbox.empty() || state.last_transfer != Work::receiving);
        state.last_transfer = receive ? Work::receiving : Work::sending;
        const std::uint32_t number = (receive ? state.inbox : state.outbox).take(packets_);
        const Packet &packet = packets_[number];
        const double rate = receive ? machine_.receive_core_bytes : machine_.put_core_bytes;
        double seconds = rate > 0 ? packet.bytes / rate : 0;
        if (receive && packet.last) seconds += machine_.receive_seconds;
        if (!receive && packet.first) seconds += machine_.put_step_seconds;
        if (machine_.cores > 0 && seconds > 0) {
            state.packet = number;
            begin(rank, state.last_transfer, seconds * state.slower, 0);
            return true;
        }
        state.spend(receive ? times.receiving : times.sending, seconds);
        if (receive) receive_packet(rank, number);
        else send_packet(state, number);
        return false;
    }

    // The sender's core has handed over a packet.
    void send_packet(SimulatedRank &state, std::uint32_t number) {
        Packet &packet = packets_[number];
        if (packet.signal)
            return events_.add(
                state.clock + machine_.signal_seconds + hosts_.look_seconds(packet.to),
                {.kind = EventKind::arrived, .key = number});
        packet.message = fabric_.leave(packet.from, packet.to, state.clock, packet.bytes);
        state.last_left = std::max(state.last_left, packet.message.last);
        packet.message.last += machine_.put_seconds;
        events_.add(packet.message.first + machine_.put_seconds,
                    {.kind = EventKind::arriving, .key = number});
    }

    // The receiver's core has received a packet.
    void receive_packet(int rank, std::uint32_t number) {
        const Packet packet = packets_[number];
        if (machine_.receive_core_bytes > 0) ranks_[index(rank)].flag_arrived = packet.last;
        const bool unexpected =
            packet.counter != no_index && program_.counters[packet.counter].value < packet.expected;
        if (packet.last && unexpected) return unexpected_[packet.counter].append(packets_, number);
        packets_.free(number);
        if (packet.last) raise(rank, packet.key, packet.value);
    }
    void raise(int rank, std::uint32_t key, std::uint32_t value) {
        RemoteCounter *counter = program_.counter(rank, key);
        if (counter == nullptr) return;
        counter->value = std::max(counter->value, value);
        wake(counter->waiting, ranks_[index(rank)].clock,
             [&](const SimulatedStep &step) { return step.value <= counter->value; });
    }
    // Marks eager puts of a peer as expected: unexpected ones are received now. No signal is sent.
    void expect(int rank, const SimulatedStep &step) {
        ranks_[index(rank)].spend(result_.ranks[index(rank)].stepping, machine_.step_seconds);
        RemoteCounter *counter = program_.counter(step.peer, flag_key(rank, step.flag));
        if (counter == nullptr) return;
        counter->value = std::max(counter->value, step.value);
        const auto found =
            unexpected_.find(static_cast<std::uint32_t>(counter - &program_.counters[0]));
        if (found == unexpected_.end()) return;
        IndexList all = found->second;
        found->second = {};
        while (!all.empty()) receive_packet(rank, all.take(packets_));
    }

    void move(int rank, const SimulatedStep &step) {
        const SimulatedRank &state = ranks_[index(rank)];
        const double rate = step.action == Action::copy ? speed_.copy : speed_.reduce;
        const double moving = rate > 0 ? step.bytes / rate : 0;
        const double fetching = step.fetches ? machine_.flag_seconds : 0;
        const double seconds = (machine_.step_seconds + fetching + moving) * state.slower;
        begin(rank, Work::step, seconds, seconds > 0 ? step.bytes / seconds : 0);
    }

    // Wakes the lanes of a list whose awaited value has been reached.
    template <typename Reached>
    void wake(IndexList &waiting, double now, const Reached &reached) {
        IndexList all = waiting;
        waiting = {};
        while (!all.empty()) {
            const std::uint32_t lane = all.take(program_.lanes);
            const int rank = program_.lanes[lane].rank;
            if (!reached(step_of(lane))) {
                waiting.append(program_.lanes, lane);
                continue;
            }
            ranks_[index(rank)].ready.add(lane);
            wake_rank(rank, now);
        }
    }
    // Resumes a rank that waits.
    void wake_rank(int rank, double now) {
        SimulatedRank &state = ranks_[index(rank)];
        if (!state.idle || (state.lanes_left == 0 && state.outbox.empty())) return;
        state.idle = false;
        if (state.clock < now) {
            result_.ranks[index(rank)].waiting += now - state.clock;
            state.clock = now;
        }
        events_.add(state.clock, {.kind = EventKind::resume, .rank = rank});
    }
    const SimulatedStep &step_of(std::uint32_t lane) const {
        return program_.steps[program_.lanes[lane].at];
    }

    const Nodes &nodes_;
    const Machine &machine_;
    const MemorySpeed speed_;
    SimulatedHosts hosts_;
    SimulatedProgram program_;
    SimulatedFabric fabric_;
    std::vector<SimulatedRank> ranks_;
    std::vector<LocalFlag> flags_;
    EventQueue events_;
    Packets packets_;
    std::unordered_map<std::uint32_t, IndexList> unexpected_;  // unexpected eager puts, by counter
    Simulation result_;
};

}  // namespace

Simulation simulate(const AnyProblem &problem, const MakeSchedule &make, const ElementBytes &bytes,
                    const Machine &machine) {
    return Simulator(problem, make, bytes, machine).run();
}

}  // namespace vescomm::internal
