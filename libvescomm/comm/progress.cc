// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Progress of the operations of a communicator, and the waits of its callers.
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "comm/communicator.h"

namespace vescomm::internal {

namespace {

// Attempts before a wait reads the clock.
constexpr int spins_uncounted = 50;
constexpr int yields = 50;
// The longest sleep. A thread tests its deadline and compares calls after each sleep; a tenth of
// the timeout keeps short deadlines.
Clock::duration longest_sleep(const Config &config) {
    const std::chrono::duration<double> sleep(std::min(0.1, config.timeout_seconds / 10));
    return std::chrono::duration_cast<Clock::duration>(sleep);
}

// Calls of progress within start(). The progress thread does the rest.
constexpr int max_start_rounds = 2;

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
    constexpr std::size_t max = 8;
    for (std::size_t i = 0; i < std::min(ranks.size(), max); ++i)
        text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    if (ranks.size() > max) text += " and " + std::to_string(ranks.size() - max) + " more";
    return text;
}

std::string timeout_sentence(int rank, const std::string &what, double seconds,
                             const std::vector<int> &peers) {
    const std::string culprits = peers.empty() ? "its bytes to leave for other nodes" : list(peers);
    return "rank " + std::to_string(rank) + ": " + what + " waited " + seconds_text(seconds) +
           " s for " + culprits +
           "; look there first, or raise VESCOMM_TIMEOUT_SECONDS when that is expected to take "
           "longer";
}

// `peer`, for which the wait is, has left.
std::string leaver_sentence(int rank, const std::string &what, int peer) {
    return "rank " + std::to_string(rank) + ": " + what + " waits for rank " +
           std::to_string(peer) +
           ", which has finalized its communicator; every rank must make the same calls before it "
           "does";
}

}  // namespace

// The lock as callers of the library take it. The progress thread lets them go first, because a
// mutex is not fair.
class Communicator::CallerLock {
public:
    explicit CallerLock(Communicator &comm) : comm_(comm), entered_(comm.lock_.enter()) {
        if (entered_ == nullptr) lock();
    }
    ~CallerLock() {
        if (entered_ != nullptr) BiasedLock::leave(*entered_);
        else comm_.lock_.unlock();
    }
    CallerLock(const CallerLock &) = delete;
    CallerLock &operator=(const CallerLock &) = delete;

private:
    [[gnu::noinline]] void lock() {
        comm_.callers_.fetch_add(1, std::memory_order_relaxed);
        comm_.lock_.lock();
        comm_.callers_.fetch_sub(1, std::memory_order_relaxed);
    }

    Communicator &comm_;
    BiasedLock::Inside *const entered_;
};

// Finds out, during one wait, that it is for a rank that has left and that nothing has moved for
// long.
class Communicator::Leavers {
public:
    void moved() { since_ = Clock::time_point::max(); }

    // Returns the rank that has left, or no_rank.
    template <typename Culprits>
    int find(const Communicator &comm, const Culprits &culprits) {
        const std::uint64_t moves = comm.moved_by_thread_.load(std::memory_order_relaxed);
        if (moves != moves_) moved();
        moves_ = moves;
        const std::vector<int> ranks = culprits();
        const auto leaver =
            std::ranges::find_if(ranks, [&](int rank) { return comm.control_->has_left(rank); });
        if (leaver == ranks.end()) {
            moved();
            return no_rank;
        }
        const auto now = Clock::now();
        since_ = std::min(since_, now);
        return now - since_ > patience_with_leavers ? *leaver : no_rank;
    }

private:
    // The moment since which a culprit has left and nothing has moved.
    Clock::time_point since_ = Clock::time_point::max();
    std::uint64_t moves_ = 0;
};

bool Communicator::progress_locked() noexcept {
    if (failure_.stops_transports()) {
        // The caller gets its memory back: no transport may write to it from here on.
        stop_locked();
        return false;
    }
    bool moved = transports_.intra_node->progress();
    for (auto &transport : transports_.inter_node) moved |= transport->progress();
    for (Operation *operation : operations_.running()) moved |= operation->advance();
    return settle_locked() || moved;
}

void Communicator::stop_locked() noexcept {
    if (stopped_) return;
    stopped_ = true;
    if (transports_.intra_node) transports_.intra_node->stop();
    for (auto &transport : transports_.inter_node) transport->stop();
}

bool Communicator::settle_locked() noexcept {
    const auto settles = [this](Operation *operation) {
        if (operation->stopped() && !require_match_locked(*operation)) return false;
        if (!operation->complete()) return false;
        if (!operation->proven_by_completion() && !require_match_locked(*operation)) return false;
        observers_.recorder.complete(operation->flight);
        operation->settle();
        return true;
    };
    // A caller may sleep until an operation that this thread has completed is complete.
    if (operations_.erase_if(settles) == 0) return false;
    if (to_wake_.load(std::memory_order_relaxed) > 0) wake();
    return true;
}

void Communicator::wake() noexcept {
    if (SignalBoard *board = board_.load()) board->ring(local_rank_);
}

template <typename Done>
bool Communicator::attempt(const Done &done, double *busy, bool *moved) {
    {
        const CallerLock lock(*this);
        if (done()) return true;
        const double before = observers_.counters.busy_seconds;
        const bool any = progress_locked();
        if (moved != nullptr) *moved = any;
        if (busy != nullptr) *busy += observers_.counters.busy_seconds - before;
        if (done()) return true;
    }
    failure_.consider_inter_node();
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

void Communicator::start(Operation &operation, const Run &run) {
    const Pollers::Polling polling(pollers_);
    const CallerLock lock(*this);
    if (!operation.settled())
        throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, "the request is running already");
    if (run.number >> 32 != 0)
        throw Error(VESCOMM_ERROR_UNSUPPORTED,
                    "flags count 2^32 - 1 runs, and this is one more; make another request, or for "
                    "barriers and arrays another communicator");
    operation.start(run);
    operation.flight =
        observers_.recorder.start(operation.flight_word(), takes_time(operation.flight_word()));
    operations_.start(operation);
    // Arriving bytes, and space for outgoing ones, wake the progress thread. Steps that can run now
    // must not wait for it.
    if (pollers_.threaded() && !stopped_ && !failure_.broken()) operation.advance();
    bool more = progress_locked();
    if (!pollers_.threaded()) return;
    for (int i = 1; more && !operation.settled() && i < max_start_rounds; ++i)
        more = progress_locked();
    if (more && !operation.settled()) wake();
}

bool Communicator::require_match_locked(Operation &operation) noexcept {
    const auto mismatch = operation.find_mismatch();
    if (!mismatch) return true;
    operation.mark_failed();
    report(*mismatch);
    return false;
}

void Communicator::report(const Mismatch &mismatch) noexcept {
    if (failure_.broken()) return;
    failure_.fail(VESCOMM_ERROR_MISMATCH, [&mismatch] { return mismatch.text(); });
}

bool Communicator::test(Operation &operation) {
    if (attempt([&operation] { return operation.settled(); })) return true;
    if (!call_watch_.due_after_test()) return false;
    {
        const CallerLock lock(*this);
        match_calls_locked();
    }
    check_still();
    return false;
}

void Communicator::match_calls_locked() noexcept {
    if (stopped_ || !call_watch_.due(longest_sleep(config_))) return;
    for (Operation *each : operations_.running()) {
        each->advertise_signature();
        require_match_locked(*each);
    }
    if (const auto mismatch = call_watch_.find_mismatch(rank(), nodes_)) report(*mismatch);
}

// A program may call this in a loop: threads that wait for the lock go first.
void Communicator::progress() {
    check();
    constexpr int max_yields = 100;
    for (int i = 0; callers_.load(std::memory_order_relaxed) > 0 && i < max_yields; ++i)
        sched_yield();
    attempt([] { return false; });
}

void Communicator::wait(Operation &operation, const std::function<std::string()> &what) {
    Pollers::Polling polling(pollers_);
    if (attempt_often([&operation] { return operation.settled(); })) return;
    wait_long(polling, [&operation] { return operation.settled(); },
              {.limit = deadline(),
               .what = what,
               .culprits = [&operation] { return operation.waiting_for(); },
               .before_sleep =
                   [this, &operation] {
                       observers_.recorder.takes_long(operation.flight);
                       // The run may wait for another one that was started before it.
                       match_calls_locked();
                   }});
}

void Communicator::wait(const std::function<bool()> &done,
                        const std::function<std::vector<int>()> &waiting_for,
                        const std::function<std::string()> &what) {
    Pollers::Polling polling(pollers_);
    if (attempt_often(done)) return;
    wait_long(polling, done, {.limit = deadline(), .what = what, .culprits = waiting_for});
}

// The control thread rings the doorbell of this rank when the result has arrived.
std::vector<std::string> Communicator::gather(std::string_view label, std::string_view bytes,
                                              Deadline limit) {
    std::optional<std::vector<std::string>> all;
    const auto done = [&] { return all || (all = control_->test_all_gather()); };
    control_->start_all_gather(label, bytes);
    Pollers::Polling polling(pollers_);
    if (!attempt_often(done))
        wait_long(polling, done,
                  {.limit = limit,
                   .what = [&] { return std::string(label); },
                   .before_sleep = [this] { match_calls_locked(); },
                   .expire = [&](double waited) { control_->expire_all_gather(waited); }});
    return std::move(*all);
}

void Communicator::finish_operations() {
    wait([this] { return operations_.running().empty(); },
         [this] {
             std::vector<int> peers;
             for (const Operation *operation : operations_.running())
                 for (const int peer : operation->waiting_for()) peers.push_back(peer);
             std::ranges::sort(peers);
             // std::ranges::unique() does not compile with clang 14.
             peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
             return peers;
         },
         [] { return std::string("finalizing the communicator while requests are under way"); });
}

std::vector<int> Communicator::staying() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < nodes_.ranks(); ++rank)
        if (rank != this->rank() && !control_->has_left(rank)) ranks.push_back(rank);
    return ranks;
}

void Communicator::wait_for_leavers() {
    // A rank that died has not left. Its failure is about to be reported here.
    const auto done = [this] { return control_->test_leave() && staying().empty(); };
    Pollers::Polling polling(pollers_);
    if (attempt_often(done)) return;
    wait_long(polling, done,
              {.limit = deadline(),
               .what = [] { return std::string("finalizing the communicator"); },
               .culprits = [this] { return staying(); }});
}

// A rank leaves after it has completed every operation that it started; other ranks rely on that.
void Communicator::finalize() {
    if (left_.exchange(true)) return;
    try {
        check_still();
        finish_operations();
        control_->start_leave();
        wait_for_leavers();
        check_still();
    } catch (...) {
        control_->end_leave();
        throw;
    }
    control_->end_leave();
}

void Communicator::leave() noexcept {
    try {
        finalize();
    } catch (const std::exception &) {
        // The communicator is broken: its connections close without the other ranks.
    }
}

// The first attempts of a wait. Most waits end here, before a look at the clock would pay.
template <typename Done>
bool Communicator::attempt_often(const Done &done) {
    pollers_.count_wait();
    // The first attempts follow without a pause, which may take longer than the wait.
    constexpr int paused = 30;
    for (int i = std::min(spins_, spins_uncounted);; --i) {
        if (attempt(done)) return true;
        if (i == 0) return false;
        if (i < paused || !transports_.inter_node.empty()) let_others();
    }
}

// Polling an inter-node transport is a system call, so one more to yield costs little.
void Communicator::let_others() const noexcept {
    if (transports_.inter_node.empty()) pause_core();
    else sched_yield();
}

void Communicator::wait_long(Pollers::Polling &polling, const std::function<bool()> &done,
                             const Waiting &waiting) {
    const double begin = trace_seconds();
    double busy = 0;  // moving bytes meanwhile
    const Deadline &limit = waiting.limit;
    SignalBoard &board = *transports_.intra_node->board();
    const auto finish = [&] {
        const double end = trace_seconds();
        observers_.counters.waiting_seconds.fetch_add(std::max(0.0, end - begin - busy),
                                                      std::memory_order_relaxed);
        observers_.trace.record([&] { return "wait " + waiting.what(); }, "wait", begin, end);
    };
    const auto culprits = [&] {
        const CallerLock lock(*this);
        return waiting.culprits ? waiting.culprits() : std::vector<int>{};
    };
    Leavers leavers;
    int sleeps = 0;
    // The wait does not sleep while anything moves.
    const auto again = [&limit](bool moved) { return moved && !limit.expired(); };
    for (;;) {
        bool moved = false;
        for (int i = 0; i < spins_; i = again(moved) ? 0 : i + 1) {
            if (attempt(done, &busy, &moved)) return finish();
            if (moved) leavers.moved();
            else let_others();
        }
        for (int i = 0; i < yields; i = again(moved) ? 0 : i + 1) {
            sched_yield();
            if (attempt(done, &busy, &moved)) return finish();
            if (moved) leavers.moved();
        }
        if (limit.expired()) {
            if (waiting.expire) waiting.expire(trace_seconds() - begin);
            give_up(VESCOMM_ERROR_TIMEOUT,
                    timeout_sentence(rank(), waiting.what(), config_.timeout_seconds, culprits()));
        }
        // Waits of a few sleeps are normal where ranks share cores.
        constexpr int few_sleeps = 8;
        if (++sleeps > few_sleeps)
            if (const int leaver = leavers.find(*this, culprits); leaver != no_rank)
                give_up(VESCOMM_ERROR_MISMATCH, leaver_sentence(rank(), waiting.what(), leaver));
        if (waiting.before_sleep) {
            const CallerLock lock(*this);
            if (!stopped_) waiting.before_sleep();
        }
        // Counted before the last attempt: a thread that completes the operation after it sees the
        // sleeper.
        to_wake_.fetch_add(1, std::memory_order_relaxed);
        const std::uint32_t seen = board.begin_sleep();
        // No rank rings for data that this rank moved itself, as in a message to itself.
        bool ready = false;
        moved = false;
        try {
            ready = attempt(done, &busy, &moved);
        } catch (...) {
            board.end_sleep();
            to_wake_.fetch_sub(1, std::memory_order_relaxed);
            throw;
        }
        // Without a progress thread only this thread polls the inter-node transports: sleep
        // briefly.
        const bool deaf = !pollers_.threaded() && !transports_.inter_node.empty();
        const Clock::duration nap = deaf ? std::chrono::milliseconds(1) : longest_sleep(config_);
        if (!ready && !moved) {
            polling.pause();
            observers_.counters.sleeps.fetch_add(1, std::memory_order_relaxed);
            board.sleep(seen, std::min(limit.moment(), Clock::now() + nap));
            polling.resume();
        }
        board.end_sleep();
        to_wake_.fetch_sub(1, std::memory_order_relaxed);
        if (ready) return finish();
    }
}

void Communicator::give_up(vescomm_status_t status, const std::string &why) {
    failure_.fail(status, why);
    check_still();
}

// Makes progress while the program computes. Sleeps in poll() on the descriptors of the inter-node
// transports and on the event descriptor by which the ranks of this node wake it.
void Communicator::run_progress_thread() {
    SignalBoard &board = *transports_.intra_node->board();
    std::vector<pollfd> entries{{board.wake_descriptor(), POLLIN, 0}};
    {
        // A caller may stop the transports as soon as this thread runs.
        const BiasedLock::Guard lock(lock_);
        for (const auto &transport : transports_.inter_node)
            if (transport->descriptor() >= 0)
                entries.push_back({transport->descriptor(), POLLIN, 0});
    }
    while (!stopping_) {
        pollers_.rest(stopping_);
        // A mutex is not fair: callers go first.
        while (callers_ > 0) sched_yield();
        failure_.consider_inter_node();
        bool moved = false;
        {
            const BiasedLock::Guard lock(lock_);
            moved = progress_locked();
        }
        if (moved) {
            moved_by_thread_.fetch_add(1, std::memory_order_relaxed);
            // A caller that sleeps goes on faster than this thread.
            wake();
            continue;
        }
        board.begin_poll();
        bool sleepy = true;
        {
            const BiasedLock::Guard lock(lock_);
            if (progress_locked()) sleepy = false;
            // A stopped transport has closed its descriptor: only the event descriptor is left.
            if (stopped_) entries.resize(1);
            for (auto &transport : transports_.inter_node)
                if (sleepy && !stopped_) sleepy = transport->arm();
        }
        if (sleepy && !stopping_) {
            constexpr int milliseconds = 200;
            poll(entries.data(), entries.size(), milliseconds);
        }
        board.end_poll();
    }
}

}  // namespace vescomm::internal
