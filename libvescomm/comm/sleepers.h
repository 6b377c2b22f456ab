// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

#include "base/deadline.h"
#include "transport/signal_board.h"

namespace vescomm::internal {

// The threads of this rank that sleep on the signal board of their node.
//
// Threads: safe after set_board(); wake() at any time.
class Sleepers {
public:
    void set_board(SignalBoard &board, int local_rank) {
        local_rank_ = local_rank;
        board_ = &board;
    }
    // There is a progress thread. Before it starts.
    void use_thread() { to_wake_ = 1; }

    // Wakes all threads. Does nothing before set_board().
    void wake() noexcept {
        if (SignalBoard *board = board_.load()) board->ring(local_rank_);
    }
    // After the calling thread has completed an operation: wakes the threads that may wait for it.
    void completed() noexcept {
        if (to_wake_.load(std::memory_order_relaxed) > 0) wake();
    }

    // The calling thread is about to sleep. After the constructor it tests its condition once more;
    // no wake-up after the constructor is lost.
    class Sleep {
    public:
        explicit Sleep(Sleepers &sleepers) : sleepers_(sleepers), board_(*sleepers.board_.load()) {
            // Counted before the last test: a thread that completes the operation after it sees the
            // sleeper.
            sleepers_.to_wake_.fetch_add(1, std::memory_order_relaxed);
            seen_ = board_.begin_sleep();
        }
        ~Sleep() {
            board_.end_sleep();
            sleepers_.to_wake_.fetch_sub(1, std::memory_order_relaxed);
        }
        Sleep(const Sleep &) = delete;
        Sleep &operator=(const Sleep &) = delete;

        // Sleeps until a wake-up, at most until the given time.
        void until(Clock::time_point moment) noexcept { board_.sleep(seen_, moment); }

    private:
        Sleepers &sleepers_;
        SignalBoard &board_;
        std::uint32_t seen_ = 0;
    };

private:
    std::atomic<SignalBoard *> board_{nullptr};
    int local_rank_ = 0;
    // Threads that sleep until another thread completes an operation; one more with a progress
    // thread.
    std::atomic<int> to_wake_{0};
};

}  // namespace vescomm::internal
