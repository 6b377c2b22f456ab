// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>

#include "vescomm/vescomm.h"

namespace vescomm {

// The first thing that went wrong on a communicator. Written once, by whichever thread comes first;
// afterwards the communicator is broken for good and every call reports this cause.
//
// Threads: safe. broken() is one load, for the hot path.
class Failure {
public:
    bool broken() const noexcept { return broken_.load(std::memory_order_acquire); }

    // Returns true for the first cause; the others change nothing. In either case broken() holds
    // afterwards. `then` (set by the owner) runs once, in the thread of the first cause, after the
    // failure is visible: it wakes waiters.
    bool set(vescomm_status_t status, const std::string &why) noexcept;

    void on_first(std::function<void()> then);

    // Runs `record` with the first cause before the failure is visible: a program that sees a
    // failure often ends its process. It runs in the thread of the first cause, without any lock of
    // this object, and delays everyone who waits: it must end within a bounded time, and must not
    // call set().
    void record_first(std::function<void(vescomm_status_t, const std::string &)> record);

    // The first cause; also while it is being recorded, before broken() holds.
    vescomm_status_t status() const noexcept;
    std::string why() const;

    // Throws Error with the first cause when broken.
    void check() const;

private:
    std::atomic<bool> broken_{false};
    mutable std::mutex mutex_;
    std::condition_variable visible_;
    vescomm_status_t status_ = VESCOMM_OK;
    std::string why_;
    std::function<void()> then_;
    std::function<void(vescomm_status_t, const std::string &)> record_;
};

}  // namespace vescomm
