// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace vescomm::internal {

using Clock = std::chrono::steady_clock;

// The time at which a wait gives up. Every wait in the library has a deadline.
class Deadline {
public:
    static Deadline after(double seconds) {
        // Capped at one year, longer than any job: much larger values would overflow the clock.
        const double capped = std::clamp(seconds, 0.0, 365.0 * 24 * 3600);
        return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(capped)));
    }

    bool expired() const { return Clock::now() >= moment_; }
    Clock::time_point moment() const { return moment_; }
    double seconds_left() const {
        return std::max(0.0, std::chrono::duration<double>(moment_ - Clock::now()).count());
    }

private:
    explicit Deadline(Clock::time_point moment) : moment_(moment) {}

    Clock::time_point moment_;
};

}  // namespace vescomm::internal
