// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "vescomm/vescomm.h"

namespace vescomm::internal {

// The first failure of a communicator. The first thread that calls set() writes the cause. From
// then on the communicator is broken, and every call reports this cause.
//
// Threads: safe. broken() is one load, for the hot path.
class Failure {
public:
    bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }

    // Returns true for the first cause. A later call changes nothing and returns false. broken() is
    // true after either.
    bool set(vescomm_status_t status, const std::string &why) noexcept;

    // Runs `then` once after the failure is visible, in the thread that set the first cause; it
    // wakes waiters. Runs it at once if the failure is visible already. Called at most once.
    void on_first(std::function<void()> then);

    // Runs `record` with the first cause before the failure is visible, because a program that sees
    // a failure often ends its process. `record` runs in the thread that sets the first cause,
    // without any lock of this object. All waiters are delayed by it, so it must end within a
    // bounded time, and it must not call set().
    void record_first(std::function<void(vescomm_status_t, const std::string &)> record);

    // The first cause. It is valid while the cause is being recorded, before broken() is true.
    vescomm_status_t status() const noexcept;
    std::string why() const;

    // Throws Error with the first cause when broken.
    void check() const {
        if (broken()) [[unlikely]]
            throw_cause();
    }

private:
    [[noreturn]] void throw_cause() const;

    std::atomic<bool> broken_{false};
    mutable std::mutex mutex_;
    std::condition_variable visible_;
    vescomm_status_t status_ = VESCOMM_OK;
    std::string why_;
    std::function<void()> then_;
    std::function<void(vescomm_status_t, const std::string &)> record_;
};

}  // namespace vescomm::internal
