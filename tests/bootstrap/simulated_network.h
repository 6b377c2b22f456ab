// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// A network in simulated time for the control plane. Each process has its own machine. Messages are
// delayed, connections break, and processes pause, end and vanish. A seed determines everything.
// One thread runs it.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bootstrap/network.h"

namespace vescomm::internal::testing_support {

using Seconds = std::chrono::duration<double>;

inline Clock::duration of_seconds(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
}

class SimulatedNetwork;

class SimulatedWorld {
public:
    explicit SimulatedWorld(std::uint64_t seed) : random(seed) {}

    // Before the first process: processes share hosts. A new listener then gets the port of an
    // ended process of its host.
    void set_hosts(int hosts) { hosts_ = hosts; }
    int hosts() const { return hosts_; }
    bool listens(const TcpAddress &address) const { return listeners_.contains(to_text(address)); }

    // ---- time ----

    Clock::time_point now() const { return now_; }
    double seconds() const { return Seconds(now_ - start_).count(); }

    // Runs a function in a process, at the given time or at the end of a pause; not at all after
    // the process has ended, or if `wanted` is false then.
    void at(Clock::time_point when, int process, std::function<void()> function,
            std::shared_ptr<const bool> wanted = nullptr) {
        events_.push_back({when, next_++, process, std::move(function), std::move(wanted)});
        std::push_heap(events_.begin(), events_.end());
    }

    // Runs events until none is left, the time is over, or an event has called stop(). Calls
    // `after` after each event.
    void run(double seconds, const std::function<void(int process)> &after) {
        const Clock::time_point end = start_ + of_seconds(seconds);
        while (!stopped_ && !events_.empty() && events_.front().when <= end) {
            std::pop_heap(events_.begin(), events_.end());
            Event event = std::move(events_.back());
            events_.pop_back();
            now_ = std::max(now_, event.when);
            if (event.process >= 0) {
                const State &process = state(event.process);
                if (!process.alive) continue;
                if (process.paused_until > now_) {
                    at(process.paused_until, event.process, std::move(event.function),
                       std::move(event.wanted));
                    continue;
                }
            }
            if (event.wanted == nullptr || *event.wanted) event.function();
            if (event.process >= 0) after(event.process);
        }
        if (!stopped_) now_ = std::max(now_, end);
    }
    void stop() { stopped_ = true; }

    // ---- faults ----

    void pause(int process, double seconds) {
        state(process).paused_until =
            std::max(state(process).paused_until, now_ + of_seconds(seconds));
    }
    bool paused(int process) { return state(process).paused_until > now_; }
    // Ends the process: its peers observe the ends of their connections.
    void end(int process);
    // The machine of the process ends or is cut off: peers receive nothing any more.
    void vanish(int process) { state(process).vanished = true; }
    bool vanished(int process) { return state(process).vanished; }
    bool alive(int process) { return state(process).alive; }
    // Breaks the connections between two processes.
    void reset(int a, int b);

    // ---- parameters ----

    std::mt19937_64 random;
    double min_latency = 50e-6;
    double max_latency = 2e-3;

    double latency() {
        return std::uniform_real_distribution<double>(min_latency, max_latency)(random);
    }

private:
    friend class SimulatedNetwork;
    friend class SimulatedStream;
    friend class SimulatedListener;

    struct Event {
        Clock::time_point when;
        std::uint64_t number;
        int process;
        std::function<void()> function;
        std::shared_ptr<const bool> wanted;

        bool operator<(const Event &other) const {
            return when != other.when ? when > other.when : number > other.number;
        }
    };
    struct State {
        bool alive = true;
        bool vanished = false;
        Clock::time_point paused_until{};
    };
    // One end of a connection.
    struct End {
        int process = 0;
        std::string local, peer;
        std::weak_ptr<End> other;
        std::shared_ptr<const Stream::Events> events;
        std::vector<std::string> early;  // received before start()
        Clock::time_point last{};  // arrival time of the last delivery to this end
        bool open = true;
        std::string ended;  // reason, if the connection ended before start()
        Descriptor descriptor;
    };
    struct Listening {
        int process = 0;
        Network::Accepted accepted;
        bool open = true;
    };

    State &state(int process) {
        if (const auto count = static_cast<std::size_t>(process) + 1; processes_.size() < count)
            processes_.resize(count);
        return processes_[static_cast<std::size_t>(process)];
    }

    // Delivers to an end, in order, after a latency.
    template <typename Function>
    void deliver(const std::shared_ptr<End> &to, Function function) {
        if (state(to->process).vanished) return;
        to->last = std::max(to->last, now_ + of_seconds(latency()));
        at(to->last, to->process, [to, function = std::move(function)] {
            if (to->open) function(*to);
        });
    }
    static void finish(const std::shared_ptr<End> &end, const std::string &how) {
        if (!end->open) return;
        end->open = false;
        if (!end->events) {
            end->ended = how;
            return;
        }
        const auto events = end->events;
        events->ended(how);
    }
    void close(const std::shared_ptr<End> &end, const std::string &how) {
        end->open = false;
        const auto other = end->other.lock();
        if (!other || !other->open || state(end->process).vanished) return;
        deliver(other, [this, other, how](End &) { finish(other, how); });
    }

    // A port for a new listener: one of an ended process of the same host, if there is one.
    std::uint16_t free_port(const std::string &host) {
        const auto freed = std::ranges::find(freed_ports_, host, &TcpAddress::host);
        if (freed == freed_ports_.end()) return next_port_++;
        const std::uint16_t port = freed->port;
        freed_ports_.erase(freed);
        const bool taken = listeners_.contains(to_text({host, port}));
        return taken ? next_port_++ : port;
    }

    const Clock::time_point start_{std::chrono::hours(1)};
    Clock::time_point now_ = start_;
    std::uint64_t next_ = 0;
    bool stopped_ = false;
    std::vector<Event> events_;  // a heap: the next event is in front
    std::vector<State> processes_;
    std::map<std::string, std::shared_ptr<Listening>> listeners_;  // by "host:port"
    std::vector<std::shared_ptr<End>> ends_;
    std::uint16_t next_port_ = 20000;
    std::vector<TcpAddress> freed_ports_;
    int hosts_ = 0;
};

class SimulatedStream final : public Stream {
public:
    SimulatedStream(SimulatedWorld &world, std::shared_ptr<SimulatedWorld::End> end)
        : world_(world), end_(std::move(end)) {}
    ~SimulatedStream() override {
        if (end_->open) world_.close(end_, "closed");
    }

    void start(Events events) override {
        const bool first = end_->events == nullptr;
        end_->events = std::make_shared<const Events>(std::move(events));
        if (!first) return;
        // Bytes and an end from before start() are delivered later, never from within this call.
        world_.at(world_.now(), end_->process, [end = end_] {
            const std::vector<std::string> early = std::exchange(end->early, {});
            for (const std::string &bytes : early)
                if (end->open || !end->ended.empty()) {
                    const auto called = end->events;
                    called->bytes(bytes);
                }
            if (!end->ended.empty()) {
                const auto called = end->events;
                called->ended(std::exchange(end->ended, {}));
            }
        });
    }
    void write(std::string_view bytes) override {
        const auto other = end_->other.lock();
        if (!end_->open || !other || world_.vanished(end_->process)) return;
        world_.deliver(other, [bytes = std::string(bytes)](SimulatedWorld::End &to) {
            if (!to.events || !to.early.empty()) return to.early.push_back(bytes);
            const auto called = to.events;
            called->bytes(bytes);
        });
    }
    bool drained() const override { return true; }
    std::string peer() const override { return end_->peer; }
    TcpAddress local() const override { return parse_tcp_address(end_->local, "simulated"); }
    void limit_silence(double) override {}
    void write_descriptor(int descriptor) override {
        const auto other = end_->other.lock();
        if (!end_->open || !other) return;
        world_.deliver(other, [descriptor](SimulatedWorld::End &to) {
            to.descriptor = Descriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
            const auto called = to.events;
            if (called) called->bytes({&descriptor_byte, 1});
        });
    }
    Descriptor take_descriptor() override { return std::move(end_->descriptor); }
    bool same_user() const override { return true; }

private:
    SimulatedWorld &world_;
    std::shared_ptr<SimulatedWorld::End> end_;
};

class SimulatedListener final : public Listener {
public:
    SimulatedListener(SimulatedWorld &world, std::string name, int process,
                      Network::Accepted accepted)
        : world_(world), name_(std::move(name)) {
        listening_ = std::make_shared<SimulatedWorld::Listening>();
        listening_->process = process;
        listening_->accepted = std::move(accepted);
        world_.listeners_[name_] = listening_;
    }
    bool narrow(const std::string &host) override {
        const std::string name = to_text({host, address().port});
        if (world_.listeners_.contains(name)) return false;
        world_.listeners_.erase(name_);
        world_.listeners_[name] = listening_;
        name_ = name;
        return true;
    }
    ~SimulatedListener() override {
        listening_->open = false;
        const auto found = world_.listeners_.find(name_);
        if (found != world_.listeners_.end() && found->second == listening_)
            world_.listeners_.erase(found);
    }
    TcpAddress address() const override {
        return name_.find(':') == std::string::npos ? TcpAddress{name_, 0}
                                                    : parse_tcp_address(name_, "simulated");
    }
    bool starved() const override { return false; }
    void retry() override {}

private:
    SimulatedWorld &world_;
    std::string name_;
    std::shared_ptr<SimulatedWorld::Listening> listening_;
};

// The network of one process. Process p has the address 10.0.0.p, unless processes share hosts.
class SimulatedNetwork final : public Network {
public:
    SimulatedNetwork(SimulatedWorld &world, int process) : world_(world), process_(process) {
        world_.state(process);
    }

    static std::string host(int process) { return "10.0.0." + std::to_string(process); }
    // Host h has the processes h, h + hosts, ... and their addresses.
    std::string host() const {
        return host(world_.hosts() == 0 ? process_ : process_ % world_.hosts());
    }

    Clock::time_point now() const override { return world_.now(); }
    void post(std::function<void()> function) override {
        world_.at(world_.now(), process_, std::move(function));
    }

    std::unique_ptr<Timer> at(Clock::time_point when, std::function<void()> function) override {
        struct Cancelling final : Timer {
            ~Cancelling() override { *alive = false; }
            std::shared_ptr<bool> alive = std::make_shared<bool>(true);
        };
        auto timer = std::make_unique<Cancelling>();
        world_.at(when, process_, std::move(function), timer->alive);
        return timer;
    }

    std::unique_ptr<Attempt> connect(const TcpAddress &address, Connected done) override {
        return connect_to(to_text(address), std::move(done));
    }
    std::unique_ptr<Attempt> connect_local(const std::string &name, Connected done) override {
        return connect_to(name, std::move(done));
    }
    std::unique_ptr<Listener> listen(const TcpAddress &address, Accepted accepted) override {
        const std::uint16_t port =
            address.port != 0 ? address.port : world_.free_port(address.host);
        const std::string name = to_text({address.host, port});
        if (world_.listeners_.contains(name))
            throw Error(VESCOMM_ERROR_SYSTEM, name + " is in use");
        return std::make_unique<SimulatedListener>(world_, name, process_, std::move(accepted));
    }
    std::unique_ptr<Listener> listen_with(int, Accepted) override {
        throw Error(VESCOMM_ERROR_UNSUPPORTED, "no inherited sockets here");
    }
    std::unique_ptr<Listener> listen_local(const std::string &name, Accepted accepted) override {
        return std::make_unique<SimulatedListener>(world_, name, process_, std::move(accepted));
    }

private:
    using End = SimulatedWorld::End;

    struct Connecting {
        bool alive = true;
        Connected done;
    };

    std::unique_ptr<Attempt> connect_to(const std::string &name, Connected done) {
        struct Cancelling final : Attempt {
            ~Cancelling() override { connecting->alive = false; }
            std::shared_ptr<Connecting> connecting = std::make_shared<Connecting>();
        };
        auto attempt = std::make_unique<Cancelling>();
        attempt->connecting->done = std::move(done);
        const auto finish = [connecting = attempt->connecting](std::unique_ptr<Stream> stream,
                                                               const std::string &why) {
            if (!std::exchange(connecting->alive, false)) return;
            const Connected call = std::move(connecting->done);
            call(std::move(stream), why);
        };
        const auto there = of_seconds(world_.latency()), back = of_seconds(world_.latency());
        // The operating system of the other machine answers, even while its process pauses.
        world_.at(world_.now() + there, -1, [this, name, finish, back] {
            if (world_.vanished(process_)) return;
            const auto found = world_.listeners_.find(name);
            if (found == world_.listeners_.end() || !world_.state(found->second->process).alive) {
                if (found != world_.listeners_.end() && world_.vanished(found->second->process))
                    return;  // no answer at all
                world_.at(world_.now() + back, process_, [finish] {
                    finish(nullptr, std::generic_category().message(ECONNREFUSED));
                });
                return;
            }
            const auto listening = found->second;
            if (world_.vanished(listening->process)) return;
            const auto mine = std::make_shared<End>(), theirs = std::make_shared<End>();
            mine->process = process_;
            theirs->process = listening->process;
            mine->local = theirs->peer = host() + ":" + std::to_string(world_.next_port_++);
            mine->peer = theirs->local = name.find(':') == std::string::npos ? "local:1" : name;
            mine->other = theirs;
            theirs->other = mine;
            world_.ends_.push_back(mine);
            world_.ends_.push_back(theirs);
            theirs->last = world_.now();
            world_.at(world_.now(), listening->process, [this, listening, theirs] {
                auto stream = std::make_unique<SimulatedStream>(world_, theirs);
                if (listening->open) listening->accepted(std::move(stream));
            });
            world_.at(world_.now() + back, process_, [this, mine, finish] {
                finish(std::make_unique<SimulatedStream>(world_, mine), {});
            });
        });
        return attempt;
    }

    SimulatedWorld &world_;
    int process_;
};

inline void SimulatedWorld::end(int process) {
    state(process).alive = false;
    for (const auto &end : ends_)
        if (end->process == process && end->open) close(end, "closed");
    // Another process may listen on its ports from now on.
    std::erase_if(listeners_, [this, process](const auto &each) {
        if (each.second->process != process) return false;
        if (each.first.find(':') != std::string::npos)
            freed_ports_.push_back(parse_tcp_address(each.first, "simulated"));
        return true;
    });
}

inline void SimulatedWorld::reset(int a, int b) {
    for (const auto &end : ends_) {
        const auto other = end->other.lock();
        if (!other || !end->open || end->process != a || other->process != b) continue;
        for (const auto &each : {end, other})
            at(now_, each->process, [each] { finish(each, "broke: Connection reset by peer"); });
    }
}

}  // namespace vescomm::internal::testing_support
