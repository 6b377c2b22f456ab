// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/pause.h"
#include "comm/call_watch.h"
#include "comm/comm_failure.h"
#include "comm/flight.h"
#include "comm/operation_list.h"
#include "comm/sleepers.h"
#include "comm/started_runs.h"
#include "execute/operation.h"
#include "observe/flight_recorder.h"
#include "topology/nodes.h"
#include "transport/signal_board.h"
#include "transport/transports.h"

namespace vescomm::internal {

// The running operations of a communicator, and the transports that move their bytes: the state
// that the lock of the progress engine guards.
//
// Threads: the caller holds that lock, except where a function says otherwise.
class RunningOperations {
public:
    RunningOperations(CommFailure &failure, FlightRecorder &recorder, Sleepers &sleepers)
        : failure_(failure), recorder_(recorder), sleepers_(sleepers) {}

    // Once, before all other functions, without the lock.
    void set_transports(Transports transports) {
        transports_ = std::move(transports);
        board_ = transports_.intra_node->board();
    }
    // Without the lock: the transports stay the same. Calls that move bytes or register memory need
    // the lock.
    Transports &transports() noexcept { return transports_; }
    const Transports &transports() const noexcept { return transports_; }

    // Reserves the memory for one operation more, so that starting and retiring it cannot fail.
    // `channel`: of its first runs.
    void admit(std::uint32_t channel) {
        started_.admit(channel);
        operations_.admit();
    }
    // Takes over an operation that its request gives up. Returns true if it was incomplete: it is
    // kept until the transports have stopped, because they may still count down its puts.
    bool retire(std::unique_ptr<Operation> operation) noexcept;

    void start(Operation &operation, const Run &run) noexcept {
        begin(operation, run);
        operations_.start(operation);
    }
    // Without transports to other nodes: starts the operation, and polls it at most 1 + `polls`
    // times; if others run, executes the possible steps of all once. Returns true if it is
    // complete.
    bool run(Operation &operation, const Run &run, int polls) noexcept;
    // The same for a small operation.
    bool run_small(Operation &operation, const Run &run, int polls) noexcept {
        if (!operations_.running().empty()) [[unlikely]]
            return this->run(operation, run, polls);
        operation.start_small(run);
        record_start(operation);
        // Without a pause, polls take the line of a flag from a far rank that is about to raise it.
        for (int poll = 0; poll <= polls && !failure_.stops_transports(); ++poll) {
            if (!operation.advance_small()) {
                pause_core();
                continue;
            }
            if (settle_small(operation)) return true;
            break;
        }
        operations_.start(operation);
        return false;
    }
    // The same for an operation that was started.
    bool poll(Operation &operation, int polls) noexcept;
    const std::vector<Operation *> &running() const noexcept { return operations_.running(); }
    StartedRuns &started() noexcept { return started_; }
    // Executes the steps that are possible without waiting, in the transports and in all
    // operations. Stops the transports after that if they must stop. Returns true if anything moved
    // and they have not stopped.
    bool progress() noexcept;

    void stop() noexcept;
    // True: the transports are stopped.
    bool stopped() const noexcept { return stopped_; }

    // Compares from now on the signatures that ranks of other nodes advertise on the channels of a
    // staging buffer, from `first_channel` on, with the calls that this rank made.
    void watch_calls(std::shared_ptr<const RecentCalls> calls, std::uint32_t first_channel,
                     int rank, const Nodes &nodes);
    // Advertises the signatures of the running operations and compares them with those of all
    // ranks. Returns at once if it did so less than `interval` ago.
    void match_calls(Clock::duration interval) noexcept;
    // True: calls are to be compared after this test. Without the lock.
    bool match_due_after_test() noexcept { return call_watch_.due_after_test(); }

private:
    void begin(Operation &operation, const Run &run) noexcept {
        operation.start(run);
        record_start(operation);
    }
    void record_start(Operation &operation) noexcept {
        operation.flight =
            recorder_.start(operation.flight_word(), takes_time(operation.flight_word()));
        if (operation.is_message())
            recorder_.set_message(operation.flight, operation.peer(), operation.tag(),
                                  operation.peer() == VESCOMM_ANY_SOURCE);
        else started_.start(operation.run_id());
    }
    // Settles a small operation whose steps have been executed. False: the communicator is broken,
    // or will be.
    bool settle_small(Operation &operation) noexcept {
        if (!operation.proven_by_completion() && !operation.agrees_with_node() &&
            !require_match(operation))
            return false;
        if (board_->withdrawn()) [[unlikely]] {
            operation.mark_failed();
            return false;
        }
        recorder_.complete(operation.flight);
        operation.settle_small();
        return true;
    }
    // Polls the operation, which is the only one that runs. Returns true if it is complete; it has
    // then been settled.
    bool poll_alone(Operation &operation, int polls) noexcept;
    // Settles the operation if it is complete.
    bool settle(Operation &operation) noexcept;
    // Settles the operations that are complete; true if there were any.
    bool settle() noexcept;
    // Breaks the communicator, and returns false, if ranks made different calls where this run is
    // due.
    bool require_match(Operation &operation) noexcept;
    void report(const Mismatch &mismatch) noexcept;

    CommFailure &failure_;
    FlightRecorder &recorder_;
    Sleepers &sleepers_;
    Transports transports_;
    SignalBoard *board_ = nullptr;
    bool stopped_ = false;
    OperationList operations_;
    StartedRuns started_;
    CallWatch call_watch_;
};

}  // namespace vescomm::internal
