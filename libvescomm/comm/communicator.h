// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/failure.h"
#include "bootstrap/control.h"
#include "comm/comm_failure.h"
#include "comm/flight.h"
#include "comm/memory_pool.h"
#include "comm/object_numbers.h"
#include "comm/observers.h"
#include "comm/progress_engine.h"
#include "config/config.h"
#include "execute/operation.h"
#include "schedule/forced.h"
#include "topology/machine.h"
#include "topology/nodes.h"
#include "transport/transports.h"

namespace vescomm::internal {

// A communicator: a set of ranks, the control plane that connects them, and the engine that makes
// progress on their operations.
//
// Threads: see vescomm.h and comm/progress_engine.h.
class Communicator {
public:
    // Creates the transports. Collective. Tests use loopback, all others make_transports().
    using MakeTransports = std::function<Transports(const Nodes &, Control &, Failure &,
                                                    std::function<void()> on_signal, Deadline)>;

    // The communicator that another one is created from, and the deadline of the creation.
    struct Parent {
        Communicator &comm;
        Deadline deadline;
    };

    // Collective, blocking. `node` is the name of this rank's node. `creator`: see
    // Session::Creation::creator(). With a parent the creation lasts until end_creation(): no
    // deadline is later than the parent's, and a failure of the parent breaks the new communicator.
    static std::shared_ptr<Communicator> create(std::unique_ptr<Control> control,
                                                const std::string &node, const Config &config,
                                                const MakeTransports &make,
                                                const std::string &creator = {},
                                                const Parent *parent = nullptr);
    // The parent must exist until then, unless the communicator ends before. Before another thread
    // uses the communicator.
    void end_creation() noexcept { creation_.reset(); }
    ~Communicator();

    int rank() const { return control_->rank(); }
    int ranks() const { return control_->ranks(); }
    const Nodes &nodes() const { return nodes_; }
    // The machine model; the same on every rank.
    const Machine &machine() const { return machine_; }
    // machine_text() of all ranks.
    const std::vector<std::string> &machine_texts() const { return machine_texts_; }
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
    // The memory of vescomm_malloc(). set_pool() is called once, before the first operation on
    // arrays. `numbers`: see CommPool.
    const CommPool &pool() const { return pool_; }
    void set_pool(std::shared_ptr<MemoryPool> pool, std::vector<int> numbers) {
        pool_.set(std::move(pool), std::move(numbers), nodes_.members(nodes_.node_of(rank())));
    }
    double timeout_seconds() const { return config_.timeout_seconds; }
    // The deadline of a call that begins now.
    Deadline deadline() const {
        const Deadline own = Deadline::after(config_.timeout_seconds);
        const bool bounded = creation_ && creation_->limit.moment() < own.moment();
        return bounded ? creation_->limit : own;
    }

    Transport &intra_node() { return *engine_.transports().intra_node; }
    // The transport to each rank.
    std::vector<Transport *> routes() const { return engine_.transports().routes(nodes_.ranks()); }
    // See ProgressEngine.
    void with_transports(const std::function<void(Transports &)> &work) {
        engine_.with_transports(work);
    }
    void watch_calls(std::shared_ptr<const RecentCalls> calls, std::uint32_t first_channel) {
        engine_.watch_calls(std::move(calls), first_channel, nodes_);
    }

    // For the objects that are created on it.
    ObjectNumbers &numbers() { return numbers_; }

    // Throws the first failure, or that the communicator was freed.
    void check() const {
        failure_.check();
        if (left_) [[unlikely]]
            refuse_finalized();
    }

    // ---- operations; see ProgressEngine ----

    std::unique_ptr<Operation> admit(const Schedule &schedule, const Bindings &bindings) {
        return engine_.admit(schedule, bindings);
    }
    // Call check() before.
    void start(Operation &operation, const Run &run) { engine_.start(operation, run); }
    bool run(Operation &operation, const Run &run) { return engine_.run(operation, run); }
    bool run_small(Operation &operation, const Run &run) {
        return engine_.run_small(operation, run);
    }
    bool poll(Operation &operation) { return engine_.poll(operation); }
    bool test(Operation &operation, Silence &silence, const std::function<std::string()> &what) {
        return engine_.test(operation, silence, what);
    }
    void wait(Operation &operation, const std::function<std::string()> &what) {
        engine_.wait(operation, what);
    }
    bool try_wait(Operation &operation, const std::function<std::string()> &what,
                  const std::function<bool()> &meanwhile) {
        return engine_.try_wait(operation, what, meanwhile);
    }
    void wait(const std::function<bool()> &done,
              const std::function<std::vector<int>()> &waiting_for,
              const std::function<std::string()> &what) {
        engine_.wait(done, waiting_for, what);
    }
    // Throws what check() throws.
    void progress();
    // Makes progress once. Returns true if anything moved. Throws what check() throws.
    bool try_progress();
    std::vector<std::string> gather(std::string_view label, std::string_view bytes,
                                    Deadline limit) {
        return engine_.gather(label, bytes, limit);
    }
    // Calls on device memory, and waits for them; see ProgressEngine.
    RunId start_device_call() noexcept { return engine_.start_device_call(); }
    ProgressEngine &engine() { return engine_; }
    // Takes over an operation that its request gives up. An incomplete one breaks the communicator,
    // because other ranks would wait for it until their deadline.
    void retire(std::unique_ptr<Operation> operation,
                const std::function<std::string()> &what) noexcept;
    void barrier();

    // Breaks the communicator for all ranks, for this one before it returns. Threads: safe.
    void abort(const std::string &reason);

    // Breaks the communicator for all ranks with another cause, for this one before it returns.
    // Threads: safe.
    void fail(vescomm_status_t status, const std::string &why) noexcept {
        failure_.fail(status, why);
    }

    // Breaks the communicator because this rank ran out of memory. Allocates nothing.
    void run_out() noexcept { failure_.run_out(); }

    // Collective: completes the running operations and waits for all ranks. Nothing can be started
    // afterwards. Throws the failure of a broken communicator, and breaks it with TIMEOUT if a rank
    // does not call it. No effect if it was called before.
    void finalize();
    // finalize() without an exception, for a caller that closes the connections in any case.
    void leave() noexcept;

private:
    // A creation from another communicator that has not ended.
    struct DerivedCreation {
        DerivedCreation(Deadline limit, CommFailure &from, CommFailure &to)
            : limit(limit), link(from, to) {}

        Deadline limit;
        CommFailure::Link link;
    };

    Communicator(std::unique_ptr<Control> control, const Config &config);

    void set_up(const std::string &node, const MakeTransports &make, const std::string &creator,
                const Parent *parent);
    // Exchanges peer info with all ranks, and sets what follows from it. Returns true if every rank
    // of this node has a core.
    bool exchange_peer_info(const std::string &node, const std::string &creator, Deadline limit);
    void create_barrier();
    void log_transports() const;
    int local_ranks() const;
    void record_failures();
    FlightHeader flight_header(vescomm_status_t status, const std::string &why) const;
    // Waits until every rank has left.
    void wait_for_finalizing_ranks();
    [[noreturn]] static void refuse_finalized();
    // Other ranks that have not left.
    std::vector<int> staying() const;

    Config config_;
    std::unique_ptr<Control> control_;
    CommFailure failure_;
    Nodes nodes_;
    Machine machine_;
    std::vector<std::string> machine_texts_;
    Forced forced_;
    Observers observers_;
    int number_ = 0;
    bool derived_ = false;
    ProgressEngine engine_;
    std::unique_ptr<Operation> barrier_;
    ObjectNumbers numbers_;
    CommPool pool_;
    std::atomic<bool> left_{false};  // finalize() was called, or creation failed
    std::optional<DerivedCreation> creation_;
};

}  // namespace vescomm::internal
