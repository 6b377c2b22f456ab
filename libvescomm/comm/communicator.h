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
#include "bootstrap/control.h"
#include "comm/call_watch.h"
#include "comm/comm_failure.h"
#include "comm/flight.h"
#include "comm/object_numbers.h"
#include "comm/observers.h"
#include "comm/operation_list.h"
#include "comm/pollers.h"
#include "config/config.h"
#include "execute/operation.h"
#include "schedule/forced.h"
#include "topology/machine.h"
#include "topology/nodes.h"
#include "transport/signal_board.h"
#include "transport/transports.h"

namespace vescomm::internal {

// A communicator: the control plane, the transports and the running operations of a set of ranks.
//
// Threads: see vescomm.h. One lock covers the transports and the operations. A thread holds it
// while it moves bytes or registers memory, and never while it waits. Without a progress thread the
// lock is biased to the thread that makes the calls (base/biased_lock.h).
class Communicator {
public:
    // Creates the transports. Collective. Tests use loopback, all others make_transports().
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
    // The machine model; the same on every rank.
    const Machine &machine() const { return machine_; }
    const Config &config() const { return config_; }
    Control &control() { return *control_; }
    const Failure &failure() const { return failure_.first(); }
    Trace &trace() { return observers_.trace; }
    Counters &counters() { return observers_.counters; }
    // Communicators that this process created before this one.
    int number() const { return number_; }
    // Writes the last operations of this rank. `pattern`: see file_name().
    void write_flight_recorder(const std::string &pattern) const;
    // Algorithms that VESCOMM_ALGORITHM forces; the same on every rank.
    const Forced &forced() const { return forced_; }
    // True: contributions are combined in the order of ranks.
    bool reproducible() const { return config_.reproducible == "yes"; }
    // True: it was created from another communicator. There may be many of these, so their staging
    // buffers take physical memory page by page.
    bool derived() const { return derived_; }
    void set_derived() { derived_ = true; }
    Deadline deadline() const { return Deadline::after(config_.timeout_seconds); }

    Transport &intra_node() { return *transports_.intra_node; }
    // The transport to each rank.
    std::vector<Transport *> routes() const { return transports_.routes(nodes_.ranks()); }
    // Runs set-up work on the transports, under the lock.
    void with_transports(const std::function<void(Transports &)> &work);

    // Compares from now on the signatures that ranks of other nodes advertise on the channels of a
    // staging buffer, from `first_channel` on, with the calls that this rank made.
    void watch_calls(std::shared_ptr<const RecentCalls> calls, std::uint32_t first_channel);

    // For the objects that are created on it.
    ObjectNumbers &numbers() { return numbers_; }

    // Throws the first failure, or that the communicator was freed.
    void check() const;

    // ---- operations ----

    // Creates an operation and reserves the memory that starting it takes, so that start() cannot
    // fail halfway.
    std::unique_ptr<Operation> admit(const Schedule &schedule, const Bindings &bindings);
    // Call check() before.
    void start(Operation &operation, const Run &run);
    bool test(Operation &operation);
    // Waits until `done` returns true; it runs under the lock, after each progress. When the
    // deadline passes, the error names `what` is waited for and the ranks that `waiting_for`
    // returns.
    void wait(const std::function<bool()> &done,
              const std::function<std::vector<int>()> &waiting_for,
              const std::function<std::string()> &what);
    void wait(Operation &operation, const std::function<std::string()> &what);
    void progress();
    // An all-gather over the control plane, for collective calls after set-up. Makes progress
    // meanwhile. Throws what Control::all_gather() throws.
    std::vector<std::string> gather(std::string_view label, std::string_view bytes, Deadline limit);
    // Takes over an operation that its request gives up. An incomplete one is kept until the
    // transports have stopped, because they may still count down its puts, and breaks the
    // communicator, because other ranks would wait for it until their deadline.
    void retire(std::unique_ptr<Operation> operation,
                const std::function<std::string()> &what) noexcept;
    void barrier();

    // Breaks the communicator for all ranks, for this one before it returns. Threads: safe.
    void abort(const std::string &reason);

    // Breaks the communicator because this rank ran out of memory. Allocates nothing.
    void run_out() noexcept { failure_.run_out(); }

    // Collective: completes the running operations and waits for all ranks. Nothing can be started
    // afterwards. Throws the failure of a broken communicator, and breaks it with TIMEOUT if a rank
    // does not call it. No effect if it was called before.
    void finalize();
    // finalize() without an exception, for a caller that closes the connections in any case.
    void leave() noexcept;

private:
    // Bytes that a rank sent before it left may arrive later. A wait for such a rank ends when
    // nothing has moved for this long.
    static constexpr auto patience_with_leavers = std::chrono::seconds(2);

    Communicator(std::unique_ptr<Control> control, const Config &config);

    class CallerLock;
    class Leavers;

    void set_up(const std::string &node, const MakeTransports &make);
    bool progress_locked() noexcept;
    // Settles the operations that are complete; true if there were any.
    bool settle_locked() noexcept;
    void stop_locked() noexcept;
    // Breaks the communicator, and returns false, if ranks made different calls where this run is
    // due.
    bool require_match_locked(Operation &operation) noexcept;
    // Advertises the signatures of the running operations and compares them with those of all
    // ranks. Returns at once if it did so a moment ago.
    void match_calls_locked() noexcept;
    void report(const Mismatch &mismatch) noexcept;
    // Throws the failure of a broken communicator, after its transports have stopped in all
    // threads.
    void check_still();
    // Makes progress once. Returns true if `done`, which runs under the lock, returns true. Throws
    // the failure of a broken communicator. `busy`: the seconds that moving bytes took are added to
    // it. `moved`: set to true if anything moved.
    template <typename Done>
    bool attempt(const Done &done, double *busy = nullptr, bool *moved = nullptr);
    template <typename Done>
    bool attempt_often(const Done &done);
    void let_others() const noexcept;
    // A long wait.
    struct Waiting {
        Deadline limit;
        std::function<std::string()> what;  // for the error: the object of the wait
        // Returns the ranks that are waited for. Under the lock. Empty: no ranks.
        std::function<std::vector<int>()> culprits = {};
        // Runs under the lock before each sleep.
        std::function<void()> before_sleep = {};
        // Throws once the limit has passed. Empty: give_up().
        std::function<void(double waited_seconds)> expire = {};
    };
    void wait_long(Pollers::Polling &polling, const std::function<bool()> &done,
                   const Waiting &waiting);
    void wake() noexcept;
    void run_progress_thread();
    void record_failures();
    FlightHeader flight_header(vescomm_status_t status, const std::string &why) const;
    // Breaks the communicator and throws.
    void give_up(vescomm_status_t status, const std::string &why);
    // Waits for the running operations.
    void finish_operations();
    // Waits until every rank has left.
    void wait_for_leavers();
    // Other ranks that have not left.
    std::vector<int> staying() const;

    Config config_;
    std::unique_ptr<Control> control_;
    CommFailure failure_;
    std::atomic<SignalBoard *> board_{nullptr};
    Nodes nodes_;
    Machine machine_;
    Forced forced_;
    int local_rank_ = 0;  // kept here: wake() is also called while control_ is destroyed
    Observers observers_;
    int number_ = 0;
    BiasedLock lock_;
    std::atomic<int> callers_{0};  // threads of callers that wait for the lock
    // Threads that sleep until another thread completes an operation; one more with a progress
    // thread.
    std::atomic<int> to_wake_{0};
    std::atomic<std::uint64_t> moved_by_thread_{
        0};  // times that the progress thread moved anything
    Pollers pollers_;
    Transports transports_;
    bool stopped_ = false;  // the transports are stopped
    OperationList operations_;
    std::unique_ptr<Operation> barrier_;
    CallWatch call_watch_;
    ObjectNumbers numbers_;
    bool derived_ = false;
    std::atomic<bool> left_{false};  // finalize() was called, or creation failed
    std::atomic<bool> stopping_{false};  // the progress thread is to end
    std::thread progress_thread_;
    int spins_ = 0;  // polls of a wait before it yields its core
};

}  // namespace vescomm::internal
