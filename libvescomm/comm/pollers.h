// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace vescomm::internal {

// Threads of this rank that poll the inter-node transports. A caller that waits polls them itself,
// faster than the progress thread could, which would only take the lock and a core from it. So the
// progress thread rests while any caller polls.
class Pollers {
public:
    // There is a progress thread. Before it starts.
    void use_thread() { threaded_ = true; }
    bool threaded() const noexcept { return threaded_; }

    // A caller polls for the life of this object, except between pause() and resume().
    class Polling {
    public:
        explicit Polling(Pollers &pollers) : pollers_(pollers) { resume(); }
        ~Polling() { end(); }
        Polling(const Polling &) = delete;
        Polling &operator=(const Polling &) = delete;

        // The caller is about to sleep: wakes the progress thread.
        void pause() {
            if (!polling_) return;
            end();
            {
                const std::lock_guard lock(pollers_.mutex_);
                ++pollers_.sleepers_;
            }
            pollers_.unpolled_.notify_one();
            sleeping_ = true;
        }
        void resume() {
            polling_ = pollers_.threaded_;
            if (!polling_) return;
            pollers_.polling_.fetch_add(1, std::memory_order_relaxed);
            if (sleeping_) --pollers_.sleepers_;
            sleeping_ = false;
        }

    private:
        void end() {
            if (polling_) pollers_.polling_.fetch_sub(1, std::memory_order_relaxed);
            polling_ = false;
        }

        Pollers &pollers_;
        bool polling_ = false;
        bool sleeping_ = false;
    };

    // A caller begins a wait.
    void count_wait() noexcept {
        if (threaded_) waits_.fetch_add(1, std::memory_order_relaxed);
    }

    // In the progress thread: returns when no caller polls, and none has begun a wait since the
    // last call, because another wait may follow soon; or when `stopping` is set.
    void rest(const std::atomic<bool> &stopping) {
        const auto polled = [&] {
            const bool any = polling_ > 0 || (waits_ != waits_seen_ && sleepers_ == 0);
            waits_seen_ = waits_;
            return any && !stopping;
        };
        std::unique_lock lock(mutex_);
        for (auto rest = shortest_rest; polled(); rest = std::min(2 * rest, longest_rest))
            unpolled_.wait_for(lock, rest);
    }

private:
    // Time between two looks of the resting thread. It doubles each time, since a look costs tens
    // of microseconds on virtual machines.
    static constexpr auto shortest_rest = std::chrono::microseconds(200);
    static constexpr auto longest_rest = std::chrono::microseconds(3200);

    bool threaded_ = false;
    std::atomic<int> polling_{0};  // callers that poll
    std::atomic<int> sleepers_{0};  // callers that paused
    std::atomic<std::uint64_t> waits_{0};  // begun so far
    std::uint64_t waits_seen_ = 0;  // by the progress thread
    std::mutex mutex_;  // for unpolled_
    std::condition_variable unpolled_;
};

}  // namespace vescomm::internal
