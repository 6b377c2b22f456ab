// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/progress_engine.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/signals.h"

namespace vescomm::internal {

namespace {

// Calls of progress within start(). The progress thread does the rest.
constexpr int max_start_rounds = 2;

}  // namespace

void ProgressEngine::refuse_running() {
    throw Error(VESCOMM_ERROR_INVALID_ARGUMENT, "the request is running already");
}

void ProgressEngine::refuse_run_number() {
    throw Error(VESCOMM_ERROR_UNSUPPORTED,
                "flags count 2^32 - 1 runs, and this is one more; make another request, or for "
                "barriers and arrays another communicator");
}

void ProgressEngine::set_transports(Transports transports, int local_rank, int spins) {
    running_.set_transports(std::move(transports));
    sleepers_.set_board(*running_.transports().intra_node->board(), local_rank);
    constexpr int max_polls = 400;
    spins_ = spins;
    polls_ = std::min(spins, max_polls);
}

void ProgressEngine::start_thread() {
    pollers_.use_thread();
    lock_.stay_unbiased();
    sleepers_.use_thread();
    const SignalsBlocked blocked;
    thread_.thread = std::thread([this] { run_thread(); });
}

void ProgressEngine::stop() noexcept {
    thread_.stopping = true;
    wake();
    if (thread_.thread.joinable()) thread_.thread.join();
    running_.stop();
}

void ProgressEngine::with_transports(const std::function<void(Transports &)> &work) {
    const EngineLock::Guard lock(lock_);
    work(running_.transports());
}

void ProgressEngine::watch_calls(std::shared_ptr<const RecentCalls> calls,
                                 std::uint32_t first_channel, const Nodes &nodes) {
    const EngineLock::Guard lock(lock_);
    running_.watch_calls(std::move(calls), first_channel, control_.rank(), nodes);
}

std::unique_ptr<Operation> ProgressEngine::admit(const Schedule &schedule,
                                                 const Bindings &bindings) {
    auto operation = std::make_unique<Operation>(schedule, bindings, observers_.counters);
    const EngineLock::Guard lock(lock_);
    running_.admit(bindings.channel);
    return operation;
}

bool ProgressEngine::retire(std::unique_ptr<Operation> operation) noexcept {
    const EngineLock::Guard lock(lock_);
    return running_.retire(std::move(operation));
}

void ProgressEngine::start(Operation &operation, const Run &run) {
    if (polls_directly()) {
        const EngineLock::Caller lock(lock_);
        check_startable(operation, run);
        running_.run(operation, run, 0);
        return;
    }
    const Pollers::Polling polling(pollers_);
    const EngineLock::Caller lock(lock_);
    check_startable(operation, run);
    running_.start(operation, run);
    // Arriving bytes, and space for outgoing ones, wake the progress thread. Steps that can run now
    // must not wait for it.
    if (pollers_.threaded() && !running_.stopped() && !failure_.broken()) operation.advance();
    bool more = running_.progress();
    if (!pollers_.threaded()) return;
    for (int i = 1; more && !operation.settled() && i < max_start_rounds; ++i)
        more = running_.progress();
    if (more && !operation.settled()) wake();
}

bool ProgressEngine::run(Operation &operation, const Run &run) {
    if (!polls_directly()) {
        start(operation, run);
        return false;
    }
    const EngineLock::Caller lock(lock_);
    check_startable(operation, run);
    return running_.run(operation, run, polls_);
}

bool ProgressEngine::poll(Operation &operation) {
    if (!polls_directly()) return false;
    const EngineLock::Caller lock(lock_);
    return running_.poll(operation, polls_);
}

// A program may call this in a loop: threads that wait for the lock go first.
void ProgressEngine::progress() {
    constexpr int max_yields = 100;
    lock_.yield_to_callers(max_yields);
    bool moved = false;
    attempt([] { return false; }, nullptr, &moved);
    if (control_.has_notes()) read_notes();
    // The thread that this one keeps from running may be the one that waits.
    if (!moved) sched_yield();
}

bool ProgressEngine::try_progress() {
    bool moved = false;
    attempt([] { return false; }, nullptr, &moved);
    if (control_.has_notes()) read_notes();
    return moved;
}

void ProgressEngine::check_stopped() {
    if (!failure_.broken()) return;
    {
        const EngineLock::Caller lock(lock_);
        running_.progress();
    }
    failure_.check();
}

Clock::duration ProgressEngine::longest_sleep() const noexcept {
    const std::chrono::duration<double> sleep(std::min(0.1, timeout_seconds_ / 10));
    return std::chrono::duration_cast<Clock::duration>(sleep);
}

// Makes progress while the program computes. Sleeps in poll() on the descriptors of the inter-node
// transports and on the event descriptor by which the ranks of this node wake it.
void ProgressEngine::run_thread() {
    const Transports &transports = running_.transports();
    SignalBoard &board = *transports.intra_node->board();
    std::vector<pollfd> entries{{board.wake_descriptor(), POLLIN, 0}};
    {
        // A caller may stop the transports as soon as this thread runs.
        const EngineLock::Guard lock(lock_);
        for (const auto &transport : transports.inter_node)
            if (transport->descriptor() >= 0)
                entries.push_back({transport->descriptor(), POLLIN, 0});
    }
    while (!thread_.stopping) {
        pollers_.rest(thread_.stopping);
        // A mutex is not fair: callers go first.
        lock_.yield_to_callers();
        failure_.consider_inter_node();
        if (control_.has_notes()) read_notes();
        bool moved = false;
        {
            const EngineLock::Guard lock(lock_);
            moved = running_.progress();
        }
        if (moved) {
            thread_.moves.fetch_add(1, std::memory_order_relaxed);
            // A caller that sleeps goes on faster than this thread.
            wake();
            continue;
        }
        board.begin_poll();
        bool sleepy = true;
        {
            const EngineLock::Guard lock(lock_);
            if (running_.progress()) sleepy = false;
            // A stopped transport has closed its descriptor: only the event descriptor is left.
            if (running_.stopped()) entries.resize(1);
            for (const auto &transport : transports.inter_node)
                if (sleepy && !running_.stopped()) sleepy = transport->arm();
        }
        if (sleepy && !thread_.stopping) {
            constexpr int milliseconds = 200;
            ::poll(entries.data(), entries.size(), milliseconds);
        }
        board.end_poll();
    }
}

}  // namespace vescomm::internal
