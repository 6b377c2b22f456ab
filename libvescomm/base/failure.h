// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
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

    // Returns true for the first cause; the others change nothing. `then` (set by the owner) runs
    // once, in the calling thread, after the cause is readable: it wakes waiters.
    bool set(vescomm_status_t status, const std::string &why) noexcept;

    void on_first(std::function<void()> then);

    // Runs `record` with the first cause before anyone else knows it: who hears of a failure often
    // ends the process. It must not use this object.
    void record_first(std::function<void(vescomm_status_t, const std::string &)> record);

    vescomm_status_t status() const noexcept;
    std::string why() const;

    // Throws Error with the first cause when broken.
    void check() const;

private:
    std::atomic<bool> broken_{false};
    mutable std::mutex mutex_;
    vescomm_status_t status_ = VESCOMM_OK;
    std::string why_;
    std::function<void()> then_;
    std::function<void(vescomm_status_t, const std::string &)> record_;
};

}  // namespace vescomm
