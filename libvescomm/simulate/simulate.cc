// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "simulate/simulate.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "simulate/fabric.h"
#include "simulate/program.h"
#include "simulate/shared_clock.h"

namespace vescomm::internal {

namespace {

std::uint32_t largest_node(const Nodes &nodes) {
    std::size_t largest = 1;
    for (int node = 0; node < nodes.count(); ++node)
        largest = std::max(largest, nodes.members(node).size());
    return static_cast<std::uint32_t>(largest);
}

// If cores copy, a put is simulated in chunks of this size, in at most this many chunks.
constexpr double chunk_bytes = 64 << 10;
constexpr double max_chunks = 8;

// Working set in bytes of the ranks of a host, which share its cache.
double footprint(const AnyProblem &problem, const ElementBytes &bytes, const Machine &machine) {
    const BufferProblem *buffers = problem.buffers();
    const bool per_node = buffers != nullptr && buffers->per_node;
    const double slabs = per_node ? 1 : largest_node(problem->nodes);
    return slabs * std::min(machine.nodes_per_host, problem->nodes.count()) *
           static_cast<double>(problem->elements()) * bytes.element;
}

// The lanes of a rank that can advance, in the order in which the executor reaches them: the
// executor passes over all lanes again and again.
class Ready {
public:
    void add(std::uint32_t lane) {
        const std::uint64_t pass = lane > last_ ? passes_ : passes_ + 1;
        lanes_.push_back(pass << 32 | lane);
        std::ranges::push_heap(lanes_, std::greater());
    }
    std::uint32_t next() {
        if (lanes_.empty()) return no_index;
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
    Simulator(const AnyProblem &problem, const MakeSchedule &make, const ElementBytes &bytes,
              const Machine &machine)
        : nodes_(problem->nodes),
          machine_(machine),
          speed_(speed_for(problem, bytes, machine)),
          program_(problem->nodes, make, bytes),
          fabric_(problem->nodes, machine),
          ranks_(static_cast<std::size_t>(nodes_.ranks())),
          flags_(ranks_.size() * flags_per_rank) {
        result_.ranks.resize(ranks_.size());
        result_.steps = static_cast<std::int64_t>(program_.steps.size());
        for (int node = 0; node < nodes_.count(); ++node)
            if (host_of_node(node) == cores_.size())
                cores_.emplace_back(machine.cores, speed_.node);
        ranks_ahead_.resize(cores_.size());
        if (machine.cores > 0) {
            std::vector<int> ranks(cores_.size());
            for (int rank = 0; rank < nodes_.ranks(); ++rank) ++ranks[host_of(rank)];
            for (std::size_t host = 0; host < ranks.size(); ++host)
                ranks_ahead_[host] = (ranks[host] + machine.cores - 1) / machine.cores - 1;
        }
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
            // A call on arrays first looks up its operation.
            spend(state, result_.ranks[index(rank)].stepping,
                  machine_.call_seconds * (problem.arrays() != nullptr ? 2 : 1));
            at(state.clock, {.kind = Kind::resume, .rank = rank});
        }
    }

    Simulation run() {
        while (!events_.empty()) {
            const Event event = events_.top();
            events_.pop();
            handle(event);
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
        resume,  // a rank continues
        worked,  // a core of a host has finished its work
        seen,  // local peers see a flag
        arriving,  // the first byte of a packet has reached the links of the receiver
        arrived,  // the last byte of a packet has arrived
    };
    struct Event {
        Kind kind;
        std::int32_t rank = 0;  // worked: the host
        std::uint32_t key = 0;  // flag_key(), index of a packet, or version of a SharedClock
        std::uint32_t value = 0;
        double time = 0;
        std::uint64_t order = 0;
        // The earliest event is on top; ties are in order of creation.
        bool operator<(const Event &other) const {
            return time != other.time ? time > other.time : order > other.order;
        }
    };
    // A linked list of packets, by their indices in packets_.
    struct PacketList {
        std::uint32_t first = no_index;
        std::uint32_t last = no_index;
        bool empty() const { return first == no_index; }
    };
    enum class Work : std::uint8_t { none, step, sending, receiving };
    struct Rank {
        Ready ready;
        std::uint32_t lane = no_index;  // current lane
        std::uint32_t lanes_left = 0;
        bool idle = false;
        bool flag_arrived = false;  // a flag came with bytes: advance lanes before the next packet
        Work work = Work::none;  // current work of its core
        Work last_transfer = Work::none;  // sending and receiving alternate
        std::uint32_t packet = no_index;  // packet of `work`
        PacketList outbox, inbox;
        double clock = 0;  // time until which its core is busy
        double last_left = 0;  // time when its last put has left
        double slower = 1;  // Straggler::slower
    };
    struct Flag {
        std::uint32_t raised = 0;  // value for the rank that raises it
        std::uint32_t seen = 0;  // value for its local peers
        LaneList waiting;
    };
    // A chunk of a put, or a signal.
    struct Packet {
        int from = 0, to = 0;
        bool signal = false;
        bool first = false, last = false;  // first chunk, last chunk of its put
        std::uint32_t key = 0, value = 0;  // flag that the last chunk raises
        // Eager put: index of the counter that says whether the put is expected, and the value from
        // which on it is.
        std::uint32_t counter = no_index, expected = 0;
        double bytes = 0;
        SimulatedMessage message;
        std::uint32_t next = no_index;
    };

    static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
    std::size_t host_of_node(int node) const {
        return static_cast<std::size_t>(node / std::max(1, machine_.nodes_per_host));
    }
    std::size_t host_of(int rank) const { return host_of_node(nodes_.node_of(rank)); }

    void at(double time, Event event) {
        event.time = time;
        event.order = events_made_++;
        events_.push(event);
    }

    void handle(const Event &event) {
        switch (event.kind) {
            case Kind::resume:
                return advance(event.rank);
            case Kind::worked:
                return worked(event);
            case Kind::seen: {
                Flag &flag = flags_[event.key];
                flag.seen = event.value;
                return wake(flag.waiting, event.time,
                            [&](const SimulatedStep &step) { return step.value <= flag.seen; });
            }
            case Kind::arriving: {
                Packet &packet = packets_[event.key];
                packet.message.first = event.time;
                packet.message = fabric_.arrive(packet.from, packet.to, packet.message);
                return at(packet.message.last + look_seconds(packet.to),
                          {.kind = Kind::arrived, .key = event.key});
            }
            case Kind::arrived: {
                Rank &state = ranks_[index(packets_[event.key].to)];
                append(state.inbox, event.key);
                return wake_rank(packets_[event.key].to, event.time);
            }
        }
    }

    // Handles the end of work of a core. The event is stale if the version of the clock has
    // changed.
    void worked(const Event &event) {
        SharedClock &cores = cores_[index(event.rank)];
        if (event.key != cores.version()) return;
        const int rank = cores.end(event.time);
        if (!cores.idle()) set(event.rank, event.time);
        Rank &state = ranks_[index(rank)];
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
            }
        }
        state.work = Work::none;
        advance(rank);
    }
    void begin(int rank, Work work, double seconds, double memory) {
        Rank &state = ranks_[index(rank)];
        state.work = work;
        const std::size_t host = host_of(rank);
        cores_[host].begin(state.clock, rank, seconds, memory);
        set(static_cast<int>(host), state.clock);
    }
    void set(int host, double now) {
        const SharedClock &cores = cores_[index(host)];
        at(std::max(now, cores.next()),
           {.kind = Kind::worked, .rank = host, .key = cores.version()});
    }

    // Advances a rank until its core is busy, its clock moves, or all its lanes wait.
    void advance(int rank) {
        Rank &state = ranks_[index(rank)];
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
                if (state.clock > now) return at(state.clock, {.kind = Kind::resume, .rank = rank});
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
                        append(waiting(step), state.lane);
                        state.lane = no_index;
                        continue;
                    }
                    [[fallthrough]];
                case Action::acquire:
                    spend(state, times.stepping, machine_.step_seconds);
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
                        return at(state.clock, {.kind = Kind::resume, .rank = rank});
                    ++lane.at;
                    state.flag_arrived = false;
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

    void signal_node(int rank, const SimulatedStep &step) {
        Rank &state = ranks_[index(rank)];
        const std::uint32_t key = flag_key(rank, step.flag);
        spend(state, result_.ranks[index(rank)].stepping, machine_.step_seconds);
        Flag &flag = flags_[key];
        flag.raised = step.value;
        // Lanes of this rank continue at once. Lanes of local peers stay in the list.
        LaneList others;
        while (flag.waiting.first != no_index) {
            const std::uint32_t lane = take(flag.waiting);
            const bool own = program_.lanes[lane].rank == rank;
            if (own && step_of(lane).value <= flag.raised) state.ready.add(lane);
            else append(others, lane);
        }
        flag.waiting = others;
        at(state.clock + machine_.flag_seconds + look_seconds(rank),
           {.kind = Kind::seen, .key = key, .value = step.value});
    }
    // Delay until a rank sees an arrival: ranks that share cores must first get a core.
    double look_seconds(int rank) const {
        return machine_.switch_seconds * ranks_ahead_[host_of(rank)];
    }

    // ---- packets ----

    // Adds a put or a signal to the outbox. If cores copy, a put is split into chunks: the receiver
    // receives the first chunks while the sender sends the last.
    void push(int rank, const SimulatedStep &step, const SimulatedStep *eager_wait) {
        int chunks = 1;
        if (machine_.put_core_bytes > 0)
            chunks = static_cast<int>(std::clamp(step.bytes / chunk_bytes, 1.0, max_chunks));
        for (int chunk = 0; chunk < chunks; ++chunk) {
            std::uint32_t number = static_cast<std::uint32_t>(packets_.size());
            if (free_packets_.empty()) {
                packets_.emplace_back();
            } else {
                number = free_packets_.back();
                free_packets_.pop_back();
            }
            Packet &packet = packets_[number];
            packet = {};
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
            append(ranks_[index(rank)].outbox, number);
        }
    }

    // Receives or sends the next packet. Returns true if a core is busy with it.
    bool move_packets(int rank) {
        Rank &state = ranks_[index(rank)];
        RankTimes &times = result_.ranks[index(rank)];
        const bool receive = !state.inbox.empty() &&
                             (state.outbox.empty() || state.last_transfer != Work::receiving);
        state.last_transfer = receive ? Work::receiving : Work::sending;
        const std::uint32_t number = take(receive ? state.inbox : state.outbox);
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
        spend(state, receive ? times.receiving : times.sending, seconds);
        if (receive) receive_packet(rank, number);
        else send_packet(state, number);
        return false;
    }

    // The sender's core has handed over a packet.
    void send_packet(Rank &state, std::uint32_t number) {
        Packet &packet = packets_[number];
        if (packet.signal)
            return at(state.clock + machine_.signal_seconds + look_seconds(packet.to),
                      {.kind = Kind::arrived, .key = number});
        packet.message = fabric_.leave(packet.from, packet.to, state.clock, packet.bytes);
        state.last_left = std::max(state.last_left, packet.message.last);
        packet.message.last += machine_.put_seconds;
        at(packet.message.first + machine_.put_seconds, {.kind = Kind::arriving, .key = number});
    }

    // The receiver's core has received a packet.
    void receive_packet(int rank, std::uint32_t number) {
        const Packet packet = packets_[number];
        if (machine_.receive_core_bytes > 0) ranks_[index(rank)].flag_arrived = packet.last;
        const bool unexpected =
            packet.counter != no_index && program_.counters[packet.counter].value < packet.expected;
        if (packet.last && unexpected) return append(unexpected_[packet.counter], number);
        free_packets_.push_back(number);
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
        spend(ranks_[index(rank)], result_.ranks[index(rank)].stepping, machine_.step_seconds);
        RemoteCounter *counter = program_.counter(step.peer, flag_key(rank, step.flag));
        if (counter == nullptr) return;
        counter->value = std::max(counter->value, step.value);
        const auto found =
            unexpected_.find(static_cast<std::uint32_t>(counter - &program_.counters[0]));
        if (found == unexpected_.end()) return;
        PacketList all = found->second;
        found->second = {};
        while (!all.empty()) receive_packet(rank, take(all));
    }

    void move(int rank, const SimulatedStep &step) {
        const Rank &state = ranks_[index(rank)];
        const double rate = step.action == Action::copy ? speed_.copy : speed_.reduce;
        const double moving = rate > 0 ? step.bytes / rate : 0;
        const double fetching = step.fetches ? machine_.flag_seconds : 0;
        const double seconds = (machine_.step_seconds + fetching + moving) * state.slower;
        begin(rank, Work::step, seconds, seconds > 0 ? step.bytes / seconds : 0);
    }

    // Wakes the lanes of a list whose awaited value has been reached.
    template <typename Reached>
    void wake(LaneList &waiting, double now, const Reached &reached) {
        LaneList all = waiting;
        waiting = {};
        for (std::uint32_t lane = take(all); lane != no_index; lane = take(all)) {
            const int rank = program_.lanes[lane].rank;
            if (!reached(step_of(lane))) {
                append(waiting, lane);
                continue;
            }
            ranks_[index(rank)].ready.add(lane);
            wake_rank(rank, now);
        }
    }
    // Resumes a rank that waits.
    void wake_rank(int rank, double now) {
        Rank &state = ranks_[index(rank)];
        if (!state.idle || (state.lanes_left == 0 && state.outbox.empty())) return;
        state.idle = false;
        if (state.clock < now) {
            result_.ranks[index(rank)].waiting += now - state.clock;
            state.clock = now;
        }
        at(state.clock, {.kind = Kind::resume, .rank = rank});
    }
    const SimulatedStep &step_of(std::uint32_t lane) const {
        return program_.steps[program_.lanes[lane].at];
    }

    void append(LaneList &list, std::uint32_t lane) {
        program_.lanes[lane].next = no_index;
        (list.first == no_index ? list.first : program_.lanes[list.last].next) = lane;
        list.last = lane;
    }
    std::uint32_t take(LaneList &list) {
        const std::uint32_t lane = list.first;
        if (lane != no_index) list.first = program_.lanes[lane].next;
        return lane;
    }
    void append(PacketList &list, std::uint32_t packet) {
        packets_[packet].next = no_index;
        (list.first == no_index ? list.first : packets_[list.last].next) = packet;
        list.last = packet;
    }
    std::uint32_t take(PacketList &list) {
        const std::uint32_t packet = list.first;
        if (packet != no_index) list.first = packets_[packet].next;
        return packet;
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
    std::vector<int> ranks_ahead_;  // of each host: ranks that run on a core before a waiting rank
    SimulatedProgram program_;
    SimulatedFabric fabric_;
    std::vector<Rank> ranks_;
    std::vector<Flag> flags_;
    std::vector<SharedClock> cores_;  // of each host
    std::priority_queue<Event> events_;
    std::uint64_t events_made_ = 0;
    std::vector<Packet> packets_;
    std::vector<std::uint32_t> free_packets_;
    std::unordered_map<std::uint32_t, PacketList> unexpected_;  // unexpected eager puts, by counter
    Simulation result_;
};

}  // namespace

MemorySpeed speed_for(const AnyProblem &problem, const ElementBytes &bytes, const Machine &whole) {
    Machine machine = whole;
    const auto width =
        static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(bytes.element)));
    const double factor = machine.reduce_of_width[std::clamp<std::size_t>(width, 1, 4) - 1];
    machine.in_cache.reduce *= factor;
    machine.in_memory.reduce *= factor;
    const double outside = share_in_memory(footprint(problem, bytes, machine), machine.cache_bytes);
    if (outside == 0) return machine.in_cache;
    if (outside == 1) return machine.in_memory;
    const auto between = [outside](double in_cache, double in_memory) {
        if (in_cache <= 0 || in_memory <= 0) return std::max(in_cache, in_memory);
        return 1 / ((1 - outside) / in_cache + outside / in_memory);
    };
    return {.copy = between(machine.in_cache.copy, machine.in_memory.copy),
            .reduce = between(machine.in_cache.reduce, machine.in_memory.reduce),
            .node = between(machine.in_cache.node, machine.in_memory.node)};
}

Simulation simulate(const AnyProblem &problem, const MakeSchedule &make, const ElementBytes &bytes,
                    const Machine &machine) {
    return Simulator(problem, make, bytes, machine).run();
}

}  // namespace vescomm::internal
