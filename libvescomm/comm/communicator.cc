// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/communicator.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "comm/agree.h"
#include "comm/signature.h"
#include "observe/file.h"
#include "observe/log.h"
#include "schedule/algorithms.h"
#include "topology/cores.h"

namespace vescomm {

namespace {

// How long to try before sleeping, by whether every rank of the node has a core of its own. With
// spare cores a flag comes within a microsecond or so; without, only giving up the core brings it.
constexpr int spins_with_cores = 200;
constexpr int spins_uncounted = 50;
constexpr int yields = 50;
// Sleeps end at least this often, to look at deadlines.
constexpr auto longest_sleep = std::chrono::milliseconds(100);

// How long the progress thread leaves the wires to callers that watch them, before it looks whether
// any still does: twice as long each time. Looking costs tens of microseconds on virtual machines.
constexpr auto shortest_rest = std::chrono::microseconds(200);
constexpr auto longest_rest = std::chrono::microseconds(3200);

// How often start() moves things along; what is still to be done then is the progress thread's.
constexpr int most_start_rounds = 2;

// What a transport says of a peer may be an echo: of a death that the control plane reports, or of
// another survivor that gave up for that reason. The control plane has this long to say better.
constexpr auto patience_for_news = std::chrono::milliseconds(500);

// Of each node, how many cores its ranks may use together.
std::vector<int> cores_of(const Nodes &nodes, const std::vector<std::string> &usable) {
    std::vector<int> cores;
    for (int node = 0; node < nodes.count(); ++node) {
        std::vector<std::string> of_members;
        for (const int rank : nodes.members(node)) of_members.push_back(usable[rank]);
        cores.push_back(count_cores(of_members));
    }
    return cores;
}

void pause_core() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

std::string seconds_text(double seconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", seconds);
    return text;
}

std::string list(const std::vector<int> &ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    constexpr std::size_t most = 8;
    for (std::size_t i = 0; i < std::min(ranks.size(), most); ++i)
        text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    if (ranks.size() > most) text += " and " + std::to_string(ranks.size() - most) + " more";
    return text;
}

}  // namespace

// The lock, for threads that called the library.
class Communicator::CallerLock {
public:
    // Without a progress thread there is nobody to keep out: callers come one at a time.
    explicit CallerLock(Communicator &comm) : comm_(comm) {
        if (!comm_.threaded_) return;
        comm_.callers_.fetch_add(1, std::memory_order_relaxed);
        comm_.mutex_.lock();
        comm_.callers_.fetch_sub(1, std::memory_order_relaxed);
    }
    ~CallerLock() {
        if (comm_.threaded_) comm_.mutex_.unlock();
    }
    CallerLock(const CallerLock &) = delete;
    CallerLock &operator=(const CallerLock &) = delete;

private:
    Communicator &comm_;
};

// A caller that tries again and again looks at the wires itself, and faster than the progress
// thread could, which would only keep the lock and a core from it.
class Communicator::Watch {
public:
    explicit Watch(Communicator &comm) : comm_(comm) { resume(); }
    ~Watch() { end(); }
    Watch(const Watch &) = delete;
    Watch &operator=(const Watch &) = delete;

    // Before it sleeps: somebody must listen.
    void pause() {
        end();
        comm_.unwatched_.notify_one();
    }
    void resume() {
        watching_ = comm_.threaded_;
        if (!watching_) return;
        comm_.watchers_.fetch_add(1, std::memory_order_relaxed);
    }

private:
    void end() {
        if (watching_) comm_.watchers_.fetch_sub(1, std::memory_order_relaxed);
        watching_ = false;
    }

    Communicator &comm_;
    bool watching_ = false;
};

Communicator::Communicator(std::unique_ptr<Control> control, const Config &config)
    : config_(config), control_(std::move(control)) {
    static std::atomic<int> made{0};
    number_ = made++;
}

std::shared_ptr<Communicator> Communicator::create(std::unique_ptr<Control> control,
                                                   const std::string &node, const Config &config,
                                                   const MakeTransports &make) {
    std::shared_ptr<Communicator> comm(new Communicator(std::move(control), config));
    try {
        comm->set_up(node, make);
    } catch (const Error &error) {
        comm->left_ = true;
        const bool echo =
            error.status == VESCOMM_ERROR_SYSTEM || error.status == VESCOMM_ERROR_PEER_FAILED;
        const auto end = Clock::now() + patience_for_news;
        while (echo && !comm->failure_.broken() && Clock::now() < end)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        comm->failure_.check();
        comm->control_->fail(error.status, "rank " + std::to_string(comm->rank()) +
                                               " could not make its communicator: " + error.what());
        throw;
    }
    return comm;
}

void Communicator::set_up(const std::string &node, const MakeTransports &make) {
    const Deadline limit = deadline();
    record_failures();
    control_->listen([this](vescomm_status_t status, const std::string &why) {
        failure_.set(status, why);
        wire_failure_.set(status, why);
    });
    wire_failure_.on_first([this] {
        wire_failed_at_ = Clock::now().time_since_epoch().count();
        wake();
    });
    nodes_ = Nodes::from_names(control_->all_gather("node names", node, limit));
    const std::vector<int> cores =
        cores_of(nodes_, control_->all_gather("cores", usable_cores(), limit));
    for (int each = 0; each < nodes_.count(); ++each)
        if (static_cast<int>(nodes_.members(each).size()) > cores[each])
            machine_.cores =
                std::min(machine_.cores > 0 ? machine_.cores : cores[each], cores[each]);
    seat_ = nodes_.local_rank(rank());
    const std::string algorithms = config_.algorithm.empty() ? "not set" : config_.algorithm;
    require_same(*control_, "communicator creation", limit, {{"VESCOMM_ALGORITHM", algorithms}});
    forced_ = Forced::parse(config_.algorithm);
    transports_ = make(
        nodes_, *control_, wire_failure_, [this] { wake(); }, limit);
    board_ = transports_.home->board();

    const int locals = static_cast<int>(nodes_.members(nodes_.node_of(rank())).size());
    spins_ = locals <= cores[nodes_.node_of(rank())] ? spins_with_cores : 0;
    failure_.on_first([this] { wake(); });

    Problem problem;
    problem.nodes = nodes_;
    const AlgorithmEntry &algorithm = *find_algorithm(Collective::barrier, "dissemination");
    Bindings bindings;
    bindings.rank = rank();
    bindings.nodes = nodes_;
    bindings.flight_word = flight_word(algorithm, -1, 0, 0);
    bindings.channel = next_channel();
    bindings.home = transports_.home.get();
    bindings.transports = routes();
    barrier_ = admit(algorithm.make(problem, rank()), bindings);

    if (log_enabled(LogLevel::info, "comm")) {
        std::string text = "nodes " + std::to_string(nodes_.count()) + ", ranks on this one " +
                           std::to_string(locals) + ", transports " +
                           std::string(transports_.home->name());
        for (const auto &wire : transports_.wires) text += ", " + std::string(wire->name());
        log(LogLevel::info, "comm", rank(), ranks(), text);
    }
    const bool wired = std::any_of(transports_.wires.begin(), transports_.wires.end(),
                                   [](const auto &wire) { return wire->descriptor() >= 0; });
    threaded_ = config_.progress == "thread" || (config_.progress == "auto" && wired);
    if (threaded_) progress_thread_ = std::thread([this] { run_progress_thread(); });
}

Communicator::~Communicator() {
    if (!left_)
        control_->fail(VESCOMM_ERROR_ABORTED, "rank " + std::to_string(rank()) +
                                                  " dropped its communicator without "
                                                  "freeing it");
    stopping_ = true;
    wake();
    if (progress_thread_.joinable()) progress_thread_.join();
    stop_locked();
    // Its threads call back into this object, so it goes before anything they touch.
    control_.reset();
}

std::vector<Transport *> Communicator::routes() const {
    std::vector<Transport *> routes(nodes_.ranks(), nullptr);
    for (int peer = 0; peer < nodes_.ranks(); ++peer) {
        if (transports_.home->maps(peer) || transports_.home->puts(peer))
            routes[peer] = transports_.home.get();
        else
            for (const auto &wire : transports_.wires)
                if (wire->puts(peer)) routes[peer] = wire.get();
        if (routes[peer] == nullptr)
            throw Error(VESCOMM_ERROR_UNSUPPORTED,
                        "rank " + std::to_string(peer) +
                            " is on another node, and this build of vescomm has no transport "
                            "between nodes; build it with UCX");
    }
    return routes;
}

void Communicator::with_transports(const std::function<void(Transports &)> &work) {
    std::lock_guard lock(mutex_);
    work(transports_);
}

std::uint32_t Communicator::next_channel() {
    const std::uint32_t channel = channels_++;
    if (channel >= transports_.home->board()->channels())
        throw Error(VESCOMM_ERROR_OUT_OF_MEMORY,
                    "this communicator has made " + std::to_string(channel) +
                        " requests and memories, the most it can; reuse requests, or make another "
                        "communicator");
    return channel;
}

void Communicator::check() const {
    failure_.check();
    if (left_)
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, "the communicator has been freed already");
}

bool Communicator::progress_locked() noexcept {
    if (failure_.broken() || wire_failure_.broken()) {
        // From here on nobody must write what the caller takes back.
        stop_locked();
        return false;
    }
    bool moved = transports_.home->progress();
    for (auto &wire : transports_.wires) moved |= wire->progress();
    for (Operation *operation : running_) moved |= operation->advance();
    settle_locked();
    return moved;
}

void Communicator::stop_locked() noexcept {
    if (stopped_) return;
    stopped_ = true;
    if (transports_.home) transports_.home->stop();
    for (auto &wire : transports_.wires) wire->stop();
}

void Communicator::settle_locked() noexcept {
    const auto settles = [this](Operation *operation) {
        if (!operation->complete()) return false;
        if (!operation->agreed() && !agree_locked(*operation)) return false;
        recorder_.complete(operation->flight);
        operation->settle();
        return true;
    };
    // The caller may sleep until one of them is complete that the progress thread has seen to.
    if (std::erase_if(running_, settles) > 0 && threaded_) wake();
}

void Communicator::wake() noexcept {
    if (SignalBoard *board = board_.load()) board->ring(seat_);
}

void Communicator::consider_wires() noexcept {
    if (!wire_failure_.broken() || failure_.broken()) return;
    const Clock::time_point since{Clock::duration(wire_failed_at_.load())};
    if (Clock::now() - since < patience_for_news) return;
    try {
        const std::string why = wire_failure_.why();
        control_->fail(wire_failure_.status(), why);
        failure_.set(wire_failure_.status(), why);
    } catch (const std::bad_alloc &) {
        failure_.set(wire_failure_.status(), {});
    }
}

template <typename Done>
bool Communicator::attempt(const Done &done, double *busy, bool *moved) {
    {
        const CallerLock lock(*this);
        if (done()) return true;
        const double before = counters_.busy_seconds;
        const bool any = progress_locked();
        if (moved != nullptr) *moved = any;
        if (busy != nullptr) *busy += counters_.busy_seconds - before;
        if (done()) return true;
    }
    consider_wires();
    check_still();
    return false;
}

void Communicator::check_still() {
    if (!failure_.broken()) return;
    {
        const CallerLock lock(*this);
        progress_locked();
    }
    failure_.check();
}

std::unique_ptr<Operation> Communicator::admit(const Schedule &schedule, const Bindings &bindings) {
    auto operation = std::make_unique<Operation>(schedule, bindings, counters_);
    const std::lock_guard lock(mutex_);
    running_.reserve(admitted_ + 1);
    retired_.reserve(retired_.size() + admitted_ + 1);
    ++admitted_;
    return operation;
}

void Communicator::start(Operation &operation, const Run &run) {
    const Watch watch(*this);
    const CallerLock lock(*this);
    if (!operation.settled())
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, "the request is running already");
    if (run.number >> 32 != 0)
        throw Error(VESCOMM_ERROR_UNSUPPORTED,
                    "flags count 2^32 - 1 runs, and this is one more; make another request, or for "
                    "barriers and arrays another communicator");
    operation.start(run);
    operation.flight =
        recorder_.start(operation.flight_word(), takes_time(operation.flight_word()));
    running_.push_back(&operation);
    // What comes in wakes the progress thread, and so does room for what goes out. Only what could
    // be done at once must not wait for either.
    bool more = progress_locked();
    if (!threaded_) return;
    for (int i = 1; more && i < most_start_rounds; ++i) more = progress_locked();
    if (more && !operation.settled()) wake();
}

bool Communicator::agree_locked(Operation &operation) noexcept {
    const int peer = operation.disagreeing();
    if (peer < 0) return true;
    operation.condemn();
    if (failure_.broken()) return false;
    try {
        const std::string why = "rank " + std::to_string(rank()) + " called " +
                                Signature(operation.signature_for(peer)).text() + ", and rank " +
                                std::to_string(peer) + " in its place " +
                                Signature(operation.signature_of(peer)).text() +
                                "; every rank must make the same calls in the same order";
        control_->fail(VESCOMM_ERROR_MISMATCH, why);
        failure_.set(VESCOMM_ERROR_MISMATCH, why);
    } catch (const std::bad_alloc &) {
        failure_.set(VESCOMM_ERROR_MISMATCH, {});
    }
    return false;
}

bool Communicator::test(Operation &operation) {
    return attempt([&operation] { return operation.settled(); });
}

void Communicator::progress() {
    check();
    attempt([] { return false; });
}

void Communicator::wait(Operation &operation, const std::function<std::string()> &what) {
    Watch watch(*this);
    if (attempt_often([&operation] { return operation.settled(); })) return;
    wait_long(
        watch, [&operation] { return operation.settled(); },
        [&operation] { return operation.waiting_for(); }, what,
        [this, &operation] {
            recorder_.takes_long(operation.flight);
            // This one may wait for another that was started before it.
            for (Operation *each : running_) {
                each->tell_signature();
                agree_locked(*each);
            }
        });
}

void Communicator::wait(const std::function<bool()> &done,
                        const std::function<std::vector<int>()> &waiting_for,
                        const std::function<std::string()> &what) {
    Watch watch(*this);
    if (!attempt_often(done)) wait_long(watch, done, waiting_for, what, {});
}

// Most waits are shorter than a look at the clock is worth.
template <typename Done>
bool Communicator::attempt_often(const Done &done) {
    if (threaded_) waits_.fetch_add(1, std::memory_order_relaxed);
    // The first ones come without a pause: what takes longest is often less than one.
    constexpr int paused = 30;
    for (int i = std::min(spins_, spins_uncounted);; --i) {
        if (attempt(done)) return true;
        if (i == 0) return false;
        if (i < paused || !transports_.wires.empty()) let_others();
    }
}

// A look at a wire is a system call, so another that lets others run costs little.
void Communicator::let_others() const noexcept {
    if (transports_.wires.empty()) pause_core();
    else sched_yield();
}

void Communicator::wait_long(Watch &watch, const std::function<bool()> &done,
                             const std::function<std::vector<int>()> &waiting_for,
                             const std::function<std::string()> &what,
                             const std::function<void()> &before_sleep) {
    const double begin = trace_seconds();
    double busy = 0;  // moving bytes meanwhile
    const Deadline limit = deadline();
    SignalBoard &board = *transports_.home->board();
    const auto finish = [&] {
        const double end = trace_seconds();
        counters_.waiting_seconds.fetch_add(std::max(0.0, end - begin - busy),
                                            std::memory_order_relaxed);
        if (trace_.on()) trace_.add("wait " + what(), "wait", begin, end);
    };
    // As long as something moves there is no reason to sleep.
    const auto again = [&limit](bool moved) { return moved && !limit.expired(); };
    for (;;) {
        bool moved = false;
        for (int i = 0; i < spins_; i = again(moved) ? 0 : i + 1) {
            if (attempt(done, &busy, &moved)) return finish();
            let_others();
        }
        for (int i = 0; i < yields; i = again(moved) ? 0 : i + 1) {
            sched_yield();
            if (attempt(done, &busy, &moved)) return finish();
        }
        if (limit.expired()) {
            std::unique_lock lock(mutex_);
            const std::vector<int> peers = waiting_for();
            lock.unlock();
            give_up(what(), peers);
        }
        if (before_sleep) {
            const CallerLock lock(*this);
            if (!stopped_) before_sleep();
        }
        const std::uint32_t seen = board.begin_sleep();
        bool ready = false;
        try {
            ready = attempt(done, &busy);
        } catch (...) {
            board.end_sleep();
            throw;
        }
        // Without a progress thread nobody else listens to the wires: come back soon.
        const bool deaf = !threaded_ && !transports_.wires.empty();
        const auto nap = deaf ? std::chrono::milliseconds(1) : longest_sleep;
        if (!ready) {
            watch.pause();
            counters_.sleeps.fetch_add(1, std::memory_order_relaxed);
            board.sleep(seen, std::min(limit.moment(), Clock::now() + nap));
            watch.resume();
        }
        board.end_sleep();
        if (ready) return finish();
    }
}

void Communicator::give_up(const std::string &what, const std::vector<int> &peers) {
    const std::string culprits = peers.empty() ? "its bytes to leave for other nodes" : list(peers);
    const std::string why = "rank " + std::to_string(rank()) + ": " + what + " waited " +
                            seconds_text(config_.timeout_seconds) + " s for " + culprits +
                            "; look there first, or raise VESCOMM_TIMEOUT_SECONDS when that is "
                            "expected to take longer";
    control_->fail(VESCOMM_ERROR_TIMEOUT, why);
    failure_.set(VESCOMM_ERROR_TIMEOUT, why);
    check_still();
}

void Communicator::retire(std::unique_ptr<Operation> operation,
                          const std::function<std::string()> &what) noexcept {
    bool dropped = false;
    {
        const std::lock_guard lock(mutex_);
        dropped = !operation->settled() && !stopped_;
        std::erase(running_, operation.get());
        --admitted_;
        if (dropped) retired_.push_back(std::move(operation));
    }
    if (!dropped || failure_.broken() || left_) return;
    try {
        const std::string why =
            "rank " + std::to_string(rank()) + " gave up " + what() + " while it was under way";
        control_->fail(VESCOMM_ERROR_ABORTED, why);
        failure_.set(VESCOMM_ERROR_ABORTED, why);
    } catch (const std::bad_alloc &) {
        failure_.set(VESCOMM_ERROR_ABORTED, {});
    }
}

void Communicator::barrier() {
    check();
    start(*barrier_, {.number = barrier_->runs() + 1});
    wait(*barrier_, [] { return std::string("barrier"); });
}

void Communicator::abort(const std::string &reason) {
    const std::string why =
        "rank " + std::to_string(rank()) + " aborted the communicator: " + reason;
    control_->fail(VESCOMM_ERROR_ABORTED, why);
    // Not only once the control plane says so: whatever this rank does next must fail.
    failure_.set(VESCOMM_ERROR_ABORTED, why);
}

FlightHeader Communicator::flight_header(vescomm_status_t status, const std::string &why) const {
    return {
        .rank = rank(), .ranks = ranks(), .communicator = number_, .status = status, .why = why};
}

void Communicator::write_flight_recorder(const std::string &pattern) const {
    // One rank may write for itself: the name need not tell them apart.
    const Writer writer{.rank = rank(), .communicator = number_};
    const std::string name = file_name(pattern, writer, "");
    const FlightHeader header = failure_.broken() ? flight_header(failure_.status(), failure_.why())
                                                  : flight_header(VESCOMM_OK, {});
    write_file(name, flight_text(header, recorder_), "the flight recorder");
}

void Communicator::record_failures() {
    if (config_.flight_recorder.empty()) return;
    const Writer writer{.rank = rank(), .ranks = ranks(), .communicator = number_};
    const std::string name = file_name(config_.flight_recorder, writer, "VESCOMM_FLIGHT_RECORDER=");
    failure_.record_first([this, name](vescomm_status_t status, const std::string &why) {
        try {
            write_file(name, flight_text(flight_header(status, why), recorder_),
                       "the flight recorder");
        } catch (const Error &error) {
            log(LogLevel::warn, "flight", rank(), ranks(), error.what());
        }
    });
}

void Communicator::leave() {
    if (left_.exchange(true)) return;
    control_->leave(deadline());
}

// Moves requests along while the program computes. Sleeps in poll: on the wires, and on the event
// descriptor by which the ranks of this node wake it.
void Communicator::run_progress_thread() {
    SignalBoard &board = *transports_.home->board();
    std::vector<pollfd> entries{{board.wake_descriptor(), POLLIN, 0}};
    for (const auto &wire : transports_.wires)
        if (wire->descriptor() >= 0) entries.push_back({wire->descriptor(), POLLIN, 0});
    std::uint64_t waits = 0;  // seen so far; where one was, another may follow soon
    const auto watched = [&] {
        const bool any = watchers_ > 0 || waits_ != waits;
        waits = waits_;
        return any && !stopping_;
    };
    while (!stopping_) {
        for (auto rest = shortest_rest; watched(); rest = std::min(2 * rest, longest_rest)) {
            std::unique_lock lock(rest_mutex_);
            unwatched_.wait_for(lock, rest);
        }
        // A mutex is not fair: whoever called the library goes first.
        while (callers_ > 0) sched_yield();
        consider_wires();
        bool moved = false;
        {
            std::lock_guard lock(mutex_);
            moved = progress_locked();
        }
        if (moved) {
            // Whoever sleeps until something happens does the rest better than this thread.
            wake();
            continue;
        }
        board.begin_poll();
        bool sleepy = true;
        {
            std::lock_guard lock(mutex_);
            if (progress_locked()) sleepy = false;
            for (auto &wire : transports_.wires)
                if (sleepy && !wire_failure_.broken()) sleepy = wire->arm();
        }
        if (sleepy && !stopping_) {
            constexpr int milliseconds = 200;
            // A broken communicator has nothing to listen to but its own end.
            const auto count = wire_failure_.broken() ? 1 : entries.size();
            poll(entries.data(), count, milliseconds);
        }
        board.end_poll();
    }
}

}  // namespace vescomm
