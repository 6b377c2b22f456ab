// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// The waits of callers: they poll, then yield, then sleep.
#include <sched.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/interrupt.h"
#include "base/pause.h"
#include "comm/long_wait.h"
#include "comm/progress_engine.h"
#include "comm/wait_sentences.h"

namespace vescomm::internal {

namespace {

// Attempts before a wait reads the clock.
constexpr int spins_uncounted = 50;
constexpr int yields = 50;

}  // namespace

template <typename Why>
void ProgressEngine::give_up(vescomm_status_t status, const Why &why) {
    failure_.fail(status, why);
    check_stopped();
}

template <typename WaitingFor>
void ProgressEngine::give_up_finalized(FinalizedPeers &finalized, const WaitingFor &waiting_for,
                                       const std::function<std::string()> &what) {
    const std::uint64_t moves = thread_.moves.load(std::memory_order_relaxed);
    if (const int peer = finalized.find(moves, waiting_for); peer != no_rank)
        give_up(VESCOMM_ERROR_MISMATCH,
                [&] { return finalized_sentence(control_.rank(), what(), peer); });
}

bool ProgressEngine::test(Operation &operation, Silence &silence,
                          const std::function<std::string()> &what) {
    bool moved = false;
    if (attempt([&operation] { return operation.settled(); }, nullptr, &moved)) return true;
    const bool compare = running_.match_due_after_test();
    if (!compare && !control_.any_has_left()) return false;
    if (control_.has_notes()) read_notes();
    if (compare) {
        const EngineLock::Caller lock(lock_);
        match_calls_locked();
    }
    check_stopped();
    FinalizedPeers finalized(control_, *running_.transports().intra_node, silence_seconds_,
                             silence);
    if (moved) finalized.moved();
    give_up_finalized(
        finalized,
        [&] {
            const EngineLock::Caller lock(lock_);
            return operation.waiting_for(true);
        },
        what);
    return false;
}

void ProgressEngine::wait(Operation &operation, const std::function<std::string()> &what) {
    if (!try_wait(operation, what)) give_up_interrupted(what);
}

bool ProgressEngine::try_wait(Operation &operation, const std::function<std::string()> &what,
                              const std::function<bool()> &meanwhile) {
    Pollers::Polling polling(pollers_);
    if (attempt_often([&operation] { return operation.settled(); })) return true;
    // The deadline is that of all waits for this run together: a program may interrupt one after
    // the other.
    Waiting waiting{
        .limit = Deadline::after(timeout_seconds_ - operation.waited_seconds),
        .what = what,
        .waiting_for = [&operation](bool directly) { return operation.waiting_for(directly); },
        .runs = [&operation] { return wait_of(operation); },
        .obstacle = [&operation] { return operation.obstacle(); },
        .before_sleep =
            [this, &operation] {
                observers_.recorder.takes_long(operation.flight);
                // The run may wait for another one that was started before it.
                match_calls_locked();
            },
        .meanwhile = meanwhile};
    if (wait_long(
            polling, [&operation] { return operation.settled(); }, waiting))
        return true;
    operation.waited_seconds = timeout_seconds_ - waiting.limit.seconds_left();
    return false;
}

void ProgressEngine::wait(const std::function<bool()> &done,
                          const std::function<std::vector<int>()> &waiting_for,
                          const std::function<std::string()> &what) {
    wait(done, {.limit = Deadline::after(timeout_seconds_),
                .what = what,
                .waiting_for = [&waiting_for](bool) { return waiting_for(); }});
}

void ProgressEngine::wait(const std::function<bool()> &done, Waiting waiting) {
    Pollers::Polling polling(pollers_);
    if (!attempt_often(done) && !wait_long(polling, done, waiting))
        give_up_interrupted(waiting.what);
}

void ProgressEngine::wait_for_all(const std::function<std::string()> &what) {
    wait([this] { return running_.running().empty(); },
         {.limit = Deadline::after(timeout_seconds_),
          .what = what,
          .waiting_for =
              [this](bool directly) {
                  std::vector<int> peers;
                  for (const Operation *operation : running_.running())
                      for (const int peer : operation->waiting_for(directly)) peers.push_back(peer);
                  std::ranges::sort(peers);
                  // std::ranges::unique() does not compile with clang 14.
                  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
                  return peers;
              },
          .runs =
              [this] {
                  std::vector<RunWait> runs;
                  for (const Operation *operation : running_.running())
                      for (const RunWait &wait : wait_of(*operation)) runs.push_back(wait);
                  return runs;
              },
          .obstacle =
              [this] {
                  std::string obstacle;
                  for (const Operation *operation : running_.running())
                      if (obstacle.empty()) obstacle = operation->obstacle();
                  return obstacle;
              }});
}

// The control thread rings the doorbell of this rank when the result has arrived.
std::vector<std::string> ProgressEngine::gather(std::string_view label, std::string_view bytes,
                                                Deadline limit) {
    std::optional<std::vector<std::string>> all;
    const auto done = [&] { return all || (all = control_.test_all_gather()); };
    RunId run;
    {
        const EngineLock::Caller lock(lock_);
        run = running_.started().start_gather();
    }
    control_.start_all_gather(label, bytes);
    Pollers::Polling polling(pollers_);
    try {
        const auto what = [&] { return std::string(label); };
        Waiting waiting{.limit = limit,
                        .what = what,
                        .runs =
                            [&run] {
                                return std::vector<RunWait>{{run, {}}};
                            },
                        .before_sleep = [this] { match_calls_locked(); },
                        .expire = [&](double waited) { control_.expire_all_gather(waited); }};
        if (!attempt_often(done) && !wait_long(polling, done, waiting)) give_up_interrupted(what);
    } catch (const Error &) {
        // A rank that found an error in the result may have broken the communicator. The result
        // came before that failure, and names that error.
        if (!done()) throw;
    }
    return std::move(*all);
}

// The first attempts of a wait. Most waits end here, before a look at the clock would pay.
template <typename Done>
bool ProgressEngine::attempt_often(const Done &done) {
    pollers_.count_wait();
    // The first attempts follow without a pause, which may take longer than the wait.
    constexpr int paused = 30;
    for (int i = std::min(spins_, spins_uncounted);; --i) {
        if (attempt(done)) return true;
        if (i == 0) return false;
        if ((i < paused || between_nodes()) && !let_others()) return false;
    }
}

// Polling an inter-node transport is a system call, so one more to yield costs little.
bool ProgressEngine::let_others() noexcept {
    if (between_nodes()) return yields_.yield();
    pause_core();
    return true;
}

bool ProgressEngine::wait_long(Pollers::Polling &polling, const std::function<bool()> &done,
                               Waiting &waiting) {
    const double begin = trace_seconds();
    double busy = 0;  // moving bytes meanwhile
    const auto finish = [&] {
        const double end = trace_seconds();
        observers_.counters.waiting_seconds.fetch_add(std::max(0.0, end - begin - busy),
                                                      std::memory_order_relaxed);
        observers_.trace.record([&] { return "wait " + waiting.what(); }, "wait", begin, end);
        return true;
    };
    const auto waits_directly_for = [&] {
        const EngineLock::Caller lock(lock_);
        return waiting.waiting_for ? waiting.waiting_for(true) : std::vector<int>{};
    };
    // Without senders of forwarded blocks that have left: they have put them.
    const auto waiting_for = [&] {
        const std::vector<int> directly = waits_directly_for();
        const EngineLock::Caller lock(lock_);
        std::vector<int> peers = waiting.waiting_for ? waiting.waiting_for(false) : directly;
        std::erase_if(peers, [&](int peer) {
            return peer != VESCOMM_ANY_SOURCE && control_.has_left(peer) &&
                   std::ranges::find(directly, peer) == directly.end();
        });
        return peers;
    };
    const auto obstacle = [&] {
        const EngineLock::Caller lock(lock_);
        return waiting.obstacle ? waiting.obstacle() : std::string();
    };
    LongWait listed(*this, waiting);
    Silence silence;
    FinalizedPeers finalized(control_, *running_.transports().intra_node, silence_seconds_,
                             silence);
    Questions questions(timeout_seconds_);
    int sleeps = 0;
    LoopDeadline limit(waiting.limit, Clock::now());
    const auto expired_at = [&](Clock::time_point now) {
        if (limit.look(now)) finalized.moved();
        waiting.limit = limit.limit();
        return limit.expired();
    };
    const auto expired = [&] { return expired_at(Clock::now()); };
    // The wait does not sleep while anything moves.
    const auto again = [&expired](bool moved) { return moved && !expired(); };
    const auto attempt_all = [&](bool &moved) {
        if (attempt(done, &busy, &moved)) return true;
        if (waiting.meanwhile && waiting.meanwhile()) moved = true;
        return false;
    };
    for (;;) {
        bool moved = false;
        for (int i = 0; i < spins_; i = again(moved) ? 0 : i + 1) {
            if (attempt_all(moved)) return finish();
            if (moved) {
                finalized.moved();
                continue;
            }
            // On shared cores a yield may take milliseconds, and a time in which nobody looks at
            // the clock counts as one in which the process did not run.
            if (!let_others() || (between_nodes() && expired())) break;
        }
        std::optional<Clock::time_point> yielded;  // the begin of the last yield, if nothing moved
        for (int i = 0; i < yields; i = again(moved) ? 0 : i + 1) {
            const Clock::time_point now = Clock::now();
            if (expired_at(now) || (yielded && !yields_.record(*yielded, now))) break;
            const bool yields_now = yields_.worthwhile(now);
            if (yields_now) sched_yield();
            else if (!moved) break;
            yielded.reset();
            if (attempt_all(moved)) {
                if (yields_now) yields_.record(now, Clock::now());
                return finish();
            }
            if (moved) finalized.moved();
            else if (yields_now) yielded = now;
        }
        if (expired()) {
            if (waiting.expire) waiting.expire(trace_seconds() - begin);
            std::vector<int> missing;
            try {
                missing = waiting_for();
                if (find_missing(done, waiting, missing)) return finish();
            } catch (const std::bad_alloc &) {
                failure_.run_out();
                check_stopped();
            }
            give_up(VESCOMM_ERROR_TIMEOUT, [&] {
                return timeout_sentence(control_.rank(), waiting.what(), timeout_seconds_, missing,
                                        obstacle());
            });
        }
        if (control_.has_notes()) read_notes();
        if (waiting.runs && questions.due(trace_seconds() - begin)) {
            listed.list();
            ask(waiting);
        }
        // Waits of a few sleeps are normal where ranks share cores.
        constexpr int few_sleeps = 8;
        if (++sleeps > few_sleeps) {
            give_up_finalized(finalized, waits_directly_for, waiting.what);
        }
        // The function of the program may run for long: the progress thread polls meanwhile.
        const bool asks = can_interrupt();
        if (asks) polling.pause();
        const bool end = asks && interrupted();
        if (asks) polling.resume();
        if (end) {
            finish();
            return false;
        }
        if (waiting.before_sleep) {
            const EngineLock::Caller lock(lock_);
            if (!running_.stopped()) waiting.before_sleep();
        }
        if (sleep(polling, done, waiting, busy)) return finish();
    }
}

bool ProgressEngine::sleep(Pollers::Polling &polling, const std::function<bool()> &done,
                           const Waiting &waiting, double &busy) {
    Sleepers::Sleep sleep(sleepers_);
    bool moved = false;
    if (attempt(done, &busy, &moved)) return true;
    // No rank rings for data that this rank moved itself, as in a message to itself.
    if (moved) return false;
    // Without a progress thread only this thread polls the inter-node transports: sleep briefly.
    const bool nothing_wakes = !pollers_.threaded() && between_nodes();
    Clock::duration longest = nothing_wakes ? std::chrono::milliseconds(1) : longest_sleep();
    // Data of other communicators wakes nobody here either, and other ranks may wait for it before
    // they come to this operation.
    if (waiting.meanwhile) longest = std::chrono::microseconds(200);
    polling.pause();
    observers_.counters.sleeps.fetch_add(1, std::memory_order_relaxed);
    sleep.until(std::min(waiting.limit.moment(), Clock::now() + longest));
    polling.resume();
    return false;
}

void ProgressEngine::give_up_interrupted(const std::function<std::string()> &what) {
    give_up(VESCOMM_ERROR_ABORTED, [&] {
        return "rank " + std::to_string(control_.rank()) + " was interrupted in " + what() +
               ", and gave up the communicator";
    });
    // give_up() throws.
    throw Error(VESCOMM_ERROR_INTERNAL, "a broken communicator has no failure; please report");
}

}  // namespace vescomm::internal
