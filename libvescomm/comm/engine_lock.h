// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <atomic>

#include "base/biased_lock.h"

namespace vescomm::internal {

// The lock of a progress engine. Callers of the library acquire it before the progress thread does,
// because a mutex is not fair.
class EngineLock {
public:
    // The lock as a caller holds it while it makes progress.
    class Caller {
    public:
        explicit Caller(EngineLock &lock) : lock_(lock), entered_(lock.lock_.enter()) {
            if (entered_ == nullptr) wait();
        }
        ~Caller() {
            if (entered_ != nullptr) BiasedLock::leave(*entered_);
            else lock_.lock_.unlock();
        }
        Caller(const Caller &) = delete;
        Caller &operator=(const Caller &) = delete;

    private:
        [[gnu::noinline]] void wait() {
            lock_.callers_.fetch_add(1, std::memory_order_relaxed);
            lock_.lock_.lock();
            lock_.callers_.fetch_sub(1, std::memory_order_relaxed);
        }

        EngineLock &lock_;
        BiasedLock::Inside *const entered_;
    };

    // The lock as the progress thread holds it, and as a caller holds it for set-up work.
    class Guard {
    public:
        explicit Guard(EngineLock &lock) noexcept : guard_(lock.lock_) {}

    private:
        const BiasedLock::Guard guard_;
    };

    // See BiasedLock.
    void stay_unbiased() noexcept { lock_.stay_unbiased(); }

    // Returns when no caller waits for the lock.
    void yield_to_callers() const noexcept {
        while (callers_ > 0) sched_yield();
    }
    // Yields at most `max_yields` times.
    void yield_to_callers(int max_yields) const noexcept {
        for (int i = 0; callers_.load(std::memory_order_relaxed) > 0 && i < max_yields; ++i)
            sched_yield();
    }

private:
    BiasedLock lock_;
    std::atomic<int> callers_{0};  // threads of callers that wait for the lock
};

}  // namespace vescomm::internal
