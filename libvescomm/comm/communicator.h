// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/biased_lock.h"
#include "base/deadline.h"
#include "base/failure.h"
#include "bootstrap/control.h"
#include "comm/call_watch.h"
#include "comm/channels.h"
#include "comm/flight.h"
#include "comm/inter_node_failure.h"
#include "comm/operation_list.h"
#include "comm/pollers.h"
#include "config/config.h"
#include "execute/operation.h"
#include "observe/trace.h"
#include "schedule/forced.h"
#include "topology/machine.h"
#include "topology/nodes.h"
#include "transport/signal_board.h"
#include "transport/transports.h"

namespace vescomm {

// The ranks that work together: the control plane, the transports, and the operations under way.
//
// Threads: as vescomm.h says. One lock covers the transports and the operations; it is held while
// bytes are moved and memory is made known, never while anything is waited for. Without a progress
// thread it is biased to the thread that makes the calls (base/biased_lock.h).
class Communicator {
public:
    // Makes them, collectively. Tests give loopback; everyone else make_transports().
    using MakeTransports = std::function<Transports(const Nodes &, Control &, Failure &,
                                                    std::function<void()> on_signal, Deadline)>;

    // Collective, blocking. `node` is the name of this rank's node.
    static std::shared_ptr<Communicator> create(std::unique_ptr<Control> control,
                                                const std::string &node, const Config &config,
                                                const MakeTransports &make);
    ~Communicator();

    int rank() const { return control_->rank(); }
    int ranks() const { return control_->ranks(); }
    const Nodes &nodes() const { return nodes_; }
    // What all ranks know alike of what they run on.
    const Machine &machine() const { return machine_; }
    const Config &config() const { return config_; }
    Control &control() { return *control_; }
    Failure &failure() { return failure_; }
    Trace &trace() { return trace_; }
    Counters &counters() { return counters_; }
    // Among all of this process, in the order in which they were made.
    int number() const { return number_; }
    // Writes the last operations of this rank. `pattern` as of file_name().
    void write_flight_recorder(const std::string &pattern) const;
    // Algorithms that the environment insists on; the same on every rank.
    const Forced &forced() const { return forced_; }
    // Whether contributions are combined in the order of ranks.
    bool reproducible() const { return config_.reproducible == "yes"; }
    // It was made of another communicator: there may be many of them, so staging memory that is
    // never used takes no room.
    bool derived() const { return derived_; }
    void set_derived() { derived_ = true; }
    // Counts communicators that were made of this one; the same on every rank.
    std::uint64_t next_child() { return children_++; }
    Deadline deadline() const { return Deadline::after(config_.timeout_seconds); }

    Transport &intra_node() { return *transports_.intra_node; }
    // The transport to each peer, for binding operations.
    std::vector<Transport *> routes() const;
    // Runs some set-up work on the transports, apart from everything that moves.
    void with_transports(const std::function<void(Transports &)> &work);

    // From now on compares the signatures that ranks of other nodes advertise on the channels of a
    // staging buffer, from `first_channel` on, with the calls that this rank made.
    void watch_calls(std::shared_ptr<const RecentCalls> calls, std::uint32_t first_channel);

    // Numbers that all ranks count alike, since creation is collective and in one order. A channel
    // of next_channel() is never given back; require_same_and_take_channel() has others.
    std::uint32_t next_channel() { return channels_.fresh(); }
    Channels &channels() { return channels_; }
    MemoryId next_memory();

    // Throws the first failure, or that the communicator was freed.
    void check() const;

    // ---- operations ----

    // Makes an operation, and room for it, so that starting it cannot fail halfway.
    std::unique_ptr<Operation> admit(const Schedule &schedule, const Bindings &bindings);
    // After check().
    void start(Operation &operation, const Run &run);
    bool test(Operation &operation);
    // Waits until `done` holds; `done` runs under the lock, after progress was made. `waiting_for`
    // names the culprits when the deadline passes, `what` the thing waited for.
    void wait(const std::function<bool()> &done,
              const std::function<std::vector<int>()> &waiting_for,
              const std::function<std::string()> &what);
    void wait(Operation &operation, const std::function<std::string()> &what);
    void progress();
    // An all-gather of the control plane; operations move along meanwhile. For everything
    // collective after set-up. Throws as Control::all_gather().
    std::vector<std::string> gather(std::string_view label, std::string_view bytes, Deadline limit);
    // Takes over an operation that its request no longer wants, and keeps it for as long as a
    // transport may still count down its puts: until they are stopped, when it is not complete.
    // Others would wait for it in vain; they are told.
    void retire(std::unique_ptr<Operation> operation,
                const std::function<std::string()> &what) noexcept;
    void barrier();

    // Breaks the communicator for all ranks, and for this one at once. Any thread.
    void abort(const std::string &reason);

    // Breaks the communicator where there is no memory to say more.
    void run_out() noexcept;

    // Waits for all ranks and closes the connections; operations move along meanwhile. Not usable
    // afterwards.
    void leave();

private:
    // What a rank did before it left may still be on its way. A wait for it in which nothing moves
    // for this long is in vain.
    static constexpr auto patience_with_leavers = std::chrono::seconds(2);

    Communicator(std::unique_ptr<Control> control, const Config &config);

    class CallerLock;
    class Leavers;

    void set_up(const std::string &node, const MakeTransports &make);
    // Tells the others that this rank goes without having freed its communicator.
    void drop() noexcept;
    bool progress_locked() noexcept;
    // Whether anything was complete.
    bool settle_locked() noexcept;
    void stop_locked() noexcept;
    // Breaks the communicator if ranks made different calls in the place of a run; then false.
    bool require_match_locked(Operation &operation) noexcept;
    // Advertises the signatures of what is under way and looks for mismatches, at every rank;
    // returns at once if it did so a moment ago.
    void match_calls_locked() noexcept;
    void report(const Mismatch &mismatch) noexcept;
    // nullptr: there is none.
    Transport *route(int peer) const noexcept;
    // Throws what broke the communicator, if anything did. Then nothing moves any more, in no
    // thread.
    void check_still();
    // Moves things along once. True when `done` says so, which is asked under the lock; otherwise
    // throws what broke the communicator. Adds the seconds for which bytes moved to `busy`;
    // `moved`: anything did.
    template <typename Done>
    bool attempt(const Done &done, double *busy = nullptr, bool *moved = nullptr);
    template <typename Done>
    bool attempt_often(const Done &done);
    void let_others() const noexcept;
    // What a wait needs besides its end, when it takes long.
    struct Waiting {
        Deadline limit;
        std::function<std::string()> what;  // it waits for
        // Under the lock, when the limit has passed: the ranks it waits for. None: no rank is.
        std::function<std::vector<int>()> culprits = {};
        // Under the lock, before each sleep.
        std::function<void()> before_sleep = {};
        // Throws, when the limit has passed. None: give_up().
        std::function<void(double waited_seconds)> expire = {};
    };
    void wait_long(Pollers::Polling &polling, const std::function<bool()> &done,
                   const Waiting &waiting);
    // Takes a wire's word for a failure once the control plane has had time to know better.
    void consider_inter_node_failure() noexcept;
    void wake() noexcept;
    void run_progress_thread();
    void record_failures();
    FlightHeader flight_header(vescomm_status_t status, const std::string &why) const;
    void give_up(const std::string &what, const std::vector<int> &peers);
    // Breaks the communicator: the wait is in vain, since that rank has said goodbye.
    void give_up_on_leaver(const std::string &what, int peer);
    // Waits for the operations that are under way.
    void finish_operations();

    Config config_;
    std::unique_ptr<Control> control_;
    Failure failure_;
    InterNodeFailure inter_node_failure_;
    std::atomic<SignalBoard *> board_{nullptr};
    Nodes nodes_;
    Machine machine_;
    Forced forced_;
    // Its place on its node. Kept, since wake() is also called while control_ goes away.
    int local_rank_ = 0;
    Trace trace_;
    Counters counters_;
    int number_ = 0;
    // Told to all where there is no memory for a better sentence.
    const std::string ran_out_ = "rank " + std::to_string(rank()) + " ran out of memory";
    FlightRecorder recorder_;
    BiasedLock lock_;
    std::atomic<int> callers_{0};  // waiting for the lock
    // Threads of this rank that sleep until an operation completes which another thread completes:
    // waiters, and 1 for the progress thread.
    std::atomic<int> to_wake_{0};
    std::atomic<std::uint64_t> moved_by_thread_{0};  // how often the progress thread moved anything
    Pollers pollers_;
    Transports transports_;
    bool stopped_ = false;
    OperationList operations_;
    std::unique_ptr<Operation> barrier_;
    CallWatch call_watch_;
    Channels channels_;
    std::atomic<MemoryId> memories_{0};
    std::uint64_t children_ = 0;
    bool derived_ = false;
    std::atomic<bool> left_{false};
    std::atomic<bool> stopping_{false};
    std::thread progress_thread_;
    int spins_ = 0;
};

}  // namespace vescomm
