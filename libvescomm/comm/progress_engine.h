// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "bootstrap/control.h"
#include "comm/comm_failure.h"
#include "comm/engine_lock.h"
#include "comm/finalized_peers.h"
#include "comm/missing_ranks.h"
#include "comm/observers.h"
#include "comm/pollers.h"
#include "comm/running_operations.h"
#include "comm/sleepers.h"
#include "comm/wait_note.h"
#include "comm/yields.h"
#include "execute/operation.h"
#include "topology/nodes.h"
#include "transport/transports.h"

namespace vescomm::internal {

// Makes progress on the operations of a communicator: in the calls of its callers, in their waits,
// and in the progress thread if there is one.
//
// Threads: safe after set_transports(). One lock covers the transports and the operations. A thread
// holds it while it moves bytes or registers memory, and never while it waits. Without a progress
// thread the lock is biased to the thread that makes the calls (base/biased_lock.h).
class ProgressEngine {
public:
    // `silence_seconds`: as long may bytes of a rank of another node be on their way without a
    // move.
    ProgressEngine(Control &control, CommFailure &failure, Observers &observers,
                   double timeout_seconds, double silence_seconds)
        : control_(control),
          failure_(failure),
          observers_(observers),
          timeout_seconds_(timeout_seconds),
          silence_seconds_(silence_seconds),
          running_(failure, observers.recorder, sleepers_) {}

    // ---- set-up and end ----

    // Before all other functions except wake(). `spins`: polls of a wait before it yields its core.
    void set_transports(Transports transports, int local_rank, int spins);
    void start_thread();
    // Ends the progress thread and stops the transports. No other call may run.
    void stop() noexcept;

    // The transports stay the same. Calls that move bytes or register memory need the lock; see
    // with_transports().
    const Transports &transports() const noexcept { return running_.transports(); }
    // Runs set-up work on the transports, under the lock.
    void with_transports(const std::function<void(Transports &)> &work);
    // See RunningOperations.
    void watch_calls(std::shared_ptr<const RecentCalls> calls, std::uint32_t first_channel,
                     const Nodes &nodes);

    // ---- operations ----

    // Creates an operation and reserves the memory that starting it takes, so that start() cannot
    // fail halfway.
    std::unique_ptr<Operation> admit(const Schedule &schedule, const Bindings &bindings);
    void start(Operation &operation, const Run &run);
    // start(), and a first wait without sleep. Returns true if the operation is complete; otherwise
    // wait for it.
    bool run(Operation &operation, const Run &run);
    // run() of a small operation.
    bool run_small(Operation &operation, const Run &run) {
        if (!polls_directly()) return this->run(operation, run);
        const EngineLock::Caller lock(lock_);
        check_startable(operation, run);
        return running_.run_small(operation, run, polls_);
    }
    // The beginning of a wait, for some microseconds. Returns true if the operation is complete;
    // otherwise wait for it. Does nothing where other ways of waiting are faster.
    bool poll(Operation &operation);
    // `silence`: of the tests of this run. `what`: see wait().
    bool test(Operation &operation, Silence &silence, const std::function<std::string()> &what);
    void progress();
    // Makes progress once. Returns true if anything moved.
    bool try_progress();
    // Takes over an operation that its request gives up. Returns true if it was incomplete: other
    // ranks would wait for it until their deadline.
    bool retire(std::unique_ptr<Operation> operation) noexcept;

    // ---- waits of callers; wait.cc ----

    void wait(Operation &operation, const std::function<std::string()> &what);
    // Returns false if the program ended the wait (base/interrupt.h); wait() then throws.
    // `meanwhile`: makes progress elsewhere and returns true if anything moved there. It runs
    // without the lock, and ends the wait if it throws.
    bool try_wait(Operation &operation, const std::function<std::string()> &what,
                  const std::function<bool()> &meanwhile = {});
    // Waits until `done` returns true; it runs under the lock, after each progress. When the
    // deadline passes, the error names `what` is waited for and the ranks that `waiting_for`
    // returns.
    void wait(const std::function<bool()> &done,
              const std::function<std::vector<int>()> &waiting_for,
              const std::function<std::string()> &what);
    // Waits until no operation runs.
    void wait_for_all(const std::function<std::string()> &what);
    // An all-gather over the control plane, for collective calls after set-up. Makes progress
    // meanwhile. Throws what Control::all_gather() throws.
    std::vector<std::string> gather(std::string_view label, std::string_view bytes, Deadline limit);

    // Throws the failure of a broken communicator, after its transports have stopped in all
    // threads.
    void check_stopped();
    // Wakes the threads that wait. At any time.
    void wake() noexcept { sleepers_.wake(); }

    // ---- device memory ----

    // This rank makes a collective call on device memory.
    RunId start_device_call() noexcept { return running_.started().start_device_call(); }
    class OutsideWait;  // outside_wait.h

private:
    struct ProgressThread {
        std::atomic<std::uint64_t> moves{0};  // times that it moved anything
        std::atomic<bool> stopping{false};  // it is to end
        std::thread thread;
    };
    // A run, and the ranks that it waits for.
    struct RunWait {
        RunId run;
        std::vector<int> awaited;
    };
    struct Search {
        RunId run;
        MissingRanks ranks;
        // Ranks that are asked about an earlier run, in which a rank waits for them that has not
        // come to `run`.
        std::map<int, RunId> earlier = {};

        RunId run_for(int rank) const {
            const auto found = earlier.find(rank);
            return found == earlier.end() ? run : found->second;
        }
        void add(const WaitNote &note, int from);
    };
    class ListedSearch;
    class LongWait;

    // A long wait.
    struct Waiting {
        Deadline limit;
        std::function<std::string()> what;  // for the error: the object of the wait
        // Returns the ranks that are waited for; `directly`: see Operation::waiting_for(). Under
        // the lock. Empty: no ranks.
        std::function<std::vector<int>(bool directly)> waiting_for = {};
        // Returns the runs that are waited for, without messages: a message waits for its peer
        // alone. An all-gather over the control plane is one. Under the lock. Empty: the wait is
        // for none.
        std::function<std::vector<RunWait>()> runs = {};
        // See Operation::obstacle(). Under the lock.
        std::function<std::string()> obstacle = {};
        // Runs under the lock before each sleep.
        std::function<void()> before_sleep = {};
        // Throws once the limit has passed. Empty: the engine does.
        std::function<void(double waited_seconds)> expire = {};
        // Makes progress elsewhere; see try_wait(). Empty: nothing to do.
        std::function<bool()> meanwhile = {};
    };

    // The long waits of all threads.
    struct LongWaits {
        std::vector<const Waiting *> waits;
        // Questions of other ranks, with the rank, about runs that this rank had not started. They
        // are answered again when a wait of this rank becomes a long one.
        std::vector<std::pair<int, RunId>> questions;
        static constexpr std::size_t max_questions = 64;
    };

    // Makes progress once. Returns true if `done`, which runs under the lock, returns true. Throws
    // the failure of a broken communicator. `busy`: the seconds that moving bytes took are added to
    // it. `moved`: set to true if anything moved.
    template <typename Done>
    bool attempt(const Done &done, double *busy = nullptr, bool *moved = nullptr);
    template <typename Done>
    bool attempt_often(const Done &done);
    // Between two attempts.
    bool let_others() noexcept;
    // Throws unless the run can be started. Under the lock.
    static void check_startable(const Operation &operation, const Run &run) {
        if (!operation.settled()) [[unlikely]]
            refuse_running();
        if (run.number >> 32 != 0) [[unlikely]]
            refuse_run_number();
    }
    [[noreturn, gnu::cold]] static void refuse_running();
    [[noreturn, gnu::cold]] static void refuse_run_number();
    // Among the ranks of one node, without a progress thread, a small collective takes less time
    // than the general way of an operation through start() and wait().
    bool polls_directly() const noexcept { return !pollers_.threaded() && !between_nodes(); }
    // Throws if the program ended the wait.
    void wait(const std::function<bool()> &done, Waiting waiting);
    // Returns false if the program ended the wait. Moves the limit while the process does not run.
    bool wait_long(Pollers::Polling &polling, const std::function<bool()> &done, Waiting &waiting);
    // Makes progress once, and sleeps if nothing has moved. `done`, `busy`: see attempt().
    bool sleep(Pollers::Polling &polling, const std::function<bool()> &done, const Waiting &waiting,
               double &busy);
    // Gives up if the wait is for a rank that has left.
    template <typename WaitingFor>
    void give_up_finalized(FinalizedPeers &finalized, const WaitingFor &waiting_for,
                           const std::function<std::string()> &what);
    [[noreturn]] void give_up_interrupted(const std::function<std::string()> &what);
    // Breaks the communicator and throws. `why` returns the sentence.
    template <typename Why>
    void give_up(vescomm_status_t status, const Why &why);
    // Compares the calls of the ranks unless that was done a moment ago. Under the lock.
    void match_calls_locked() noexcept { running_.match_calls(longest_sleep()); }
    // A thread tests its deadline and compares calls after each sleep; a tenth of the timeout keeps
    // short deadlines.
    Clock::duration longest_sleep() const noexcept;
    bool between_nodes() const noexcept { return !running_.transports().inter_node.empty(); }
    void run_thread();

    // ---- notes about waits; find_missing.cc ----

    static std::vector<RunWait> wait_of(const Operation &operation);
    // The long wait of a thread that is for `run`, or for any run; nullptr: there is none. Under
    // the lock.
    const Waiting *long_wait(const std::optional<RunId> &run) const;
    static WaitNote elsewhere(const RunId &run, const Waiting &waiting);
    WaitNote answer_to(int from, const RunId &run);
    // Adds a wait to the long ones.
    void list(const Waiting &waiting) noexcept;
    // Breaks the communicator if this rank and `from` wait in runs that they started in different
    // orders.
    void compare_orders(int from, const WaitNote &note);
    // Asks the ranks that a wait is for, at long intervals, whether they wait elsewhere.
    void ask(const Waiting &waiting) noexcept;
    // Answers the questions of other ranks, and passes their answers to the searches.
    void read_notes() noexcept;
    // Asks until the search is complete, at most until the given time. Makes progress meanwhile.
    // Returns true if `done` does.
    bool search(ListedSearch &search, const std::function<bool()> &done, Clock::time_point until);
    // The deadline of a wait has passed: replaces `missing` by the ranks that keep the runs from
    // completing, unless none can be found. Returns true if the wait ends meanwhile.
    bool find_missing(const std::function<bool()> &done, const Waiting &waiting,
                      std::vector<int> &missing);

    Control &control_;
    CommFailure &failure_;
    Observers &observers_;
    const double timeout_seconds_, silence_seconds_;
    Sleepers sleepers_;
    EngineLock lock_;
    Pollers pollers_;
    RunningOperations running_;  // guarded by lock_
    Yields yields_;
    int spins_ = 0;  // polls of a wait before it yields its core
    int polls_ = 0;  // of run() and poll(), which hold the lock meanwhile: some microseconds
    LongWaits long_waits_;  // guarded by lock_
    std::mutex searches_mutex_;
    std::vector<Search *> searches_;  // guarded by searches_mutex_
    ProgressThread thread_;
};

template <typename Done>
bool ProgressEngine::attempt(const Done &done, double *busy, bool *moved) {
    {
        const EngineLock::Caller lock(lock_);
        if (done()) return true;
        const std::atomic<double> &busy_seconds = observers_.counters.busy_seconds;
        const double before = busy_seconds;
        const bool any = running_.progress();
        if (moved != nullptr) *moved = any;
        if (busy != nullptr) *busy += busy_seconds - before;
        if (done()) return true;
    }
    failure_.consider_inter_node();
    if (!failure_.broken()) return false;
    {
        // Complete, if all that it needs came before the failure.
        const EngineLock::Caller lock(lock_);
        running_.progress();
        if (done()) return true;
    }
    failure_.check();
    return false;
}

}  // namespace vescomm::internal
