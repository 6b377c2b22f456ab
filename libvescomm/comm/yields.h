// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>

#include "base/deadline.h"

namespace vescomm::internal {

// Knows whether programs that compute share the cores with this rank. A thread that yields its core
// runs after all of them, often milliseconds later; one that sleeps runs as soon as it is woken.
// All functions may be called in several threads at the same time.
class Yields {
public:
    // A yield that takes longer is slow. Where only waiting ranks share a core, it takes some
    // microseconds.
    static constexpr Clock::duration slow = std::chrono::milliseconds(1);
    // A slow yield is followed by a time without yields: this many times as long, twice as many
    // after each slow yield without a quick one between them, at most `max_rests`.
    static constexpr int first_rests = 1, max_rests = 32;
    // The process may have been suspended.
    static constexpr Clock::duration longest_rest = std::chrono::seconds(1);

    // False: a thread that waits should sleep.
    bool worthwhile(Clock::time_point now) const noexcept {
        return now.time_since_epoch().count() >= rests_until_.load(std::memory_order_relaxed);
    }

    // A yield took from `begin` to `end`. Returns false if that was slow.
    bool record(Clock::time_point begin, Clock::time_point end) noexcept {
        const Clock::duration took = end - begin;
        if (took <= slow) [[likely]] {
            if (rests_.load(std::memory_order_relaxed) != first_rests)
                rests_.store(first_rests, std::memory_order_relaxed);
            return true;
        }
        const int rests = rests_.load(std::memory_order_relaxed);
        const Clock::duration rest = std::min(took, longest_rest / rests) * rests;
        rests_until_.store((end + rest).time_since_epoch().count(), std::memory_order_relaxed);
        rests_.store(std::min(2 * rests, max_rests), std::memory_order_relaxed);
        return false;
    }

    // Yields, if that is worthwhile. Returns false if the thread should sleep.
    bool yield() noexcept {
        const Clock::time_point begin = Clock::now();
        if (!worthwhile(begin)) return false;
        sched_yield();
        return record(begin, Clock::now());
    }

private:
    std::atomic<Clock::rep> rests_until_{Clock::time_point::min().time_since_epoch().count()};
    std::atomic<int> rests_{first_rests};
};

}  // namespace vescomm::internal
