// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace vescomm::internal {

// Ends calls of NCCL that wait for a rank that does not come: NCCL connects in its first calls, and
// a call cannot be left. A thread looks at the call in progress some times a second, so that a call
// itself costs two atomic writes. Between calls it ends kernels of NCCL after a failure: the
// program may wait for them in CUDA, and make no call of vescomm that would end them.
//
// NCCL's own way to this, its non-blocking mode, starts each call in a new thread: 130 microseconds
// for a call of 28 (two ranks on an H100, NCCL 2.32.3).
class NcclWatch {
public:
    struct Actions {
        std::function<bool()> failed;  // the ranks have failed
        // They have: a call may wait for kernels of vescomm, of which CUDA has queued too many, and
        // they for other ranks. Called often.
        std::function<void()> end_waits_of_kernels;
        std::function<void()> end;  // makes the call in progress return; called at most once
        // Between calls, while the ranks have failed for a while: true if end() may be called.
        std::function<bool()> may_end_kernels;
    };
    // The actions run in the thread of the watch. Throws std::system_error without a thread.
    NcclWatch(double limit_seconds, Actions actions);
    ~NcclWatch();
    NcclWatch(const NcclWatch &) = delete;
    NcclWatch &operator=(const NcclWatch &) = delete;

    // True: a call or the kernels were ended.
    bool ended() const { return state_.load(std::memory_order_acquire) == has_ended; }
    // Nothing is ended any more when it returns, by the constructing thread.
    void stop_ending() noexcept;

    // A call of the constructing thread; nullptr: nothing is watched. One at a time.
    class Scope {
    public:
        explicit Scope(NcclWatch *watch);
        ~Scope();
        Scope(const Scope &) = delete;
        Scope &operator=(const Scope &) = delete;

    private:
        NcclWatch *const watch_;
        std::int64_t begin_ = 0;
    };

private:
    // Other values: the time at which the call in progress began.
    static constexpr std::int64_t no_call = 0, is_ending = -1, has_ended = -2, stopped_ending = -3;

    void watch();
    void look();
    void look_between_calls();
    void end(std::int64_t state);

    const double limit_seconds_;
    const Actions actions_;
    std::atomic<std::int64_t> state_{no_call};
    std::int64_t failed_at_ = 0;  // 0: not yet
    std::mutex mutex_;
    std::condition_variable stopped_;
    bool stop_ = false;
    std::thread thread_;
};

}  // namespace vescomm::internal
