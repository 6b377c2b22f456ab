// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "comm/running_operations.h"

#include "transport/signal_board.h"

namespace vescomm::internal {

bool RunningOperations::progress() noexcept {
    if (stopped_) return false;
    const bool stops = failure_.stops_transports();
    bool moved = transports_.intra_node->progress();
    for (auto &transport : transports_.inter_node) moved |= transport->progress();
    for (Operation *operation : operations_.running()) moved |= operation->advance();
    moved |= settle();
    // Operations that needed no more than had arrived before the failure are complete. The caller
    // gets the memory of the others back: no transport may write to it from here on.
    if (stops) stop();
    return moved && !stops;
}

void RunningOperations::stop() noexcept {
    if (stopped_) return;
    stopped_ = true;
    if (board_ != nullptr && failure_.stops_transports() && !operations_.running().empty())
        board_->withdraw();
    if (transports_.intra_node) transports_.intra_node->stop();
    for (auto &transport : transports_.inter_node) transport->stop();
}

bool RunningOperations::run(Operation &operation, const Run &run, int polls) noexcept {
    begin(operation, run);
    const bool alone = operations_.running().empty();
    if (alone && poll_alone(operation, polls)) return true;
    operations_.start(operation);
    if (!alone) progress();
    return operation.settled();
}

bool RunningOperations::poll(Operation &operation, int polls) noexcept {
    if (operation.settled()) return true;
    const auto &running = operations_.running();
    if (running.size() != 1 || running[0] != &operation) return false;
    if (!poll_alone(operation, polls)) return false;
    operations_.clear();
    // A thread may sleep until this operation is complete.
    sleepers_.completed();
    return true;
}

bool RunningOperations::poll_alone(Operation &operation, int polls) noexcept {
    // Other threads wait for the lock meanwhile: a large operation, of which each poll may copy a
    // chunk, goes back to the general way.
    constexpr int max_moves = 8;
    int moves = 0;
    for (int poll = 0; poll <= polls && moves <= max_moves; ++poll) {
        if (failure_.stops_transports()) return false;
        if (operation.advance()) ++moves;
        if (settle(operation)) return true;
    }
    return false;
}

bool RunningOperations::settle(Operation &operation) noexcept {
    if (operation.stopped() && !require_match(operation)) return false;
    if (!operation.complete()) return false;
    if (!operation.proven_by_completion() && !require_match(operation)) return false;
    if (board_ != nullptr && board_->withdrawn()) {
        // Its failure will arrive.
        operation.mark_failed();
        return false;
    }
    if (const MessageHeader *message = operation.message())
        recorder_.set_message(operation.flight, message->source, message->tag,
                              operation.peer() == VESCOMM_ANY_SOURCE);
    recorder_.complete(operation.flight);
    operation.settle();
    return true;
}

bool RunningOperations::settle() noexcept {
    if (operations_.erase_if([this](Operation *operation) { return settle(*operation); }) == 0)
        return false;
    // A caller may sleep until an operation that this thread has completed is complete.
    sleepers_.completed();
    return true;
}

bool RunningOperations::retire(std::unique_ptr<Operation> operation) noexcept {
    const bool incomplete = !operation->settled() && !stopped_;
    // The caller gets its arrays back, while others may still read those that are registered.
    if (incomplete && board_ != nullptr) board_->withdraw();
    operations_.retire(std::move(operation), incomplete);
    return incomplete;
}

bool RunningOperations::require_match(Operation &operation) noexcept {
    const auto mismatch = operation.find_mismatch();
    if (!mismatch) return true;
    operation.mark_failed();
    report(*mismatch);
    return false;
}

void RunningOperations::report(const Mismatch &mismatch) noexcept {
    if (failure_.broken()) return;
    failure_.fail(VESCOMM_ERROR_MISMATCH, [&mismatch] { return mismatch.text(); });
}

void RunningOperations::watch_calls(std::shared_ptr<const RecentCalls> calls,
                                    std::uint32_t first_channel, int rank, const Nodes &nodes) {
    call_watch_.watch(std::move(calls), first_channel, rank, nodes,
                      transports_.routes(nodes.ranks()));
}

void RunningOperations::match_calls(Clock::duration interval) noexcept {
    if (stopped_ || !call_watch_.due(interval)) return;
    for (Operation *each : operations_.running()) {
        each->advertise_signature();
        require_match(*each);
    }
    if (const auto mismatch = call_watch_.find_mismatch()) report(*mismatch);
}

}  // namespace vescomm::internal
