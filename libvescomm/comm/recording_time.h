// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <mutex>

#include "base/deadline.h"

namespace vescomm::internal {

// The time that a process may spend on recording failures. The failure of one rank can break many
// communicators at once, and a file system may hang: all of them together wait no longer for it
// than one does.
//
// Threads: safe.
class RecordingTime {
public:
    explicit RecordingTime(Clock::duration max) : max_(max) {}

    // Returns the time that is left for a recording.
    Clock::duration left(Clock::time_point now) {
        const std::lock_guard lock(mutex_);
        // Failures so far apart have different causes.
        constexpr auto quiet = std::chrono::seconds(10);
        if (now - last_ > quiet) spent_ = {};
        last_ = now;
        return max_ - spent_;
    }
    // A recording that began at `begun` has ended.
    void spend(Clock::time_point begun, Clock::time_point now) {
        const std::lock_guard lock(mutex_);
        last_ = now;
        spent_ = std::min(max_, spent_ + (now - begun));
    }

private:
    const Clock::duration max_;
    std::mutex mutex_;
    Clock::duration spent_{};
    Clock::time_point last_{};
};

}  // namespace vescomm::internal
