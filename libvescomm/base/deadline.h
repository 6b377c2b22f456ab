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
    friend class LoopDeadline;

    explicit Deadline(Clock::time_point moment) : moment_(moment) {}

    Clock::time_point moment_;
};

// The deadline of a loop. Time in which the process did not run does not count: a job may be
// suspended as a whole, or move to another machine, while some of its ranks wait for others.
class LoopDeadline {
public:
    // A running loop looks at the time more often than this.
    static constexpr auto max_round = std::chrono::seconds(2);

    LoopDeadline(Deadline limit, Clock::time_point now) : limit_(limit), looked_(now) {}

    // Called in each round of the loop. Returns true if the process did not run for a while.
    bool look(Clock::time_point now) {
        const Clock::duration round = now - looked_;
        looked_ = now;
        if (round <= max_round) return false;
        limit_.moment_ += round - max_round;
        return true;
    }
    bool expired() const { return looked_ >= limit_.moment(); }
    Deadline limit() const { return limit_; }

private:
    Deadline limit_;
    Clock::time_point looked_;
};

}  // namespace vescomm::internal
