// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <vector>

namespace vescomm::internal {

// Work of ranks that share the cores and the memory of a host. All current work is slowed down by
// one common factor, which changes whenever work begins or ends. A virtual clock that runs at this
// speed gives the end of each piece of work when the work begins, so no piece is updated in
// between.
class SharedClock {
public:
    // Number of cores, and bytes per second of memory; 0: no limit.
    SharedClock(int cores, double memory) : cores_(cores), memory_(memory) {}

    // Begins work of `rank` that would take `seconds` alone, at `memory` bytes per second.
    void begin(double now, int rank, double seconds, double memory) {
        pass_to(now);
        work_.push({time_ + seconds, rank, memory});
        demand_ += memory;
        ++version_;
    }
    // Time when the next piece of work ends, if no other work begins before. Not when idle.
    double next() const { return at_ + (work_.top().done - time_) / speed(); }
    // Ends the next piece of work at time `now` and returns its rank.
    int end(double now) {
        const Work work = work_.top();
        work_.pop();
        at_ = now;
        time_ = work.done;
        demand_ = work_.empty() ? 0 : demand_ - work.memory;
        ++version_;
        return work.rank;
    }
    bool idle() const { return work_.empty(); }
    // Results of next() are valid until the version changes.
    std::uint32_t version() const { return version_; }

private:
    struct Work {
        double done;  // end, in virtual time
        int rank;
        double memory;
        // The work that ends first is on top; ties are in order of ranks.
        bool operator<(const Work &other) const {
            return done != other.done ? done > other.done : rank > other.rank;
        }
    };

    double speed() const {
        double speed = 1;
        const auto active = static_cast<double>(work_.size());
        if (cores_ > 0) speed = std::min(speed, cores_ / active);
        if (memory_ > 0 && demand_ > 0) speed = std::min(speed, memory_ / demand_);
        return speed;
    }
    void pass_to(double now) {
        if (!work_.empty()) time_ += (now - at_) * speed();
        at_ = now;
    }

    int cores_;
    double memory_;
    double at_ = 0;  // simulated time of the last change
    double time_ = 0;  // virtual time at at_
    double demand_ = 0;  // bytes per second of all current work
    std::priority_queue<Work> work_;
    std::uint32_t version_ = 0;
};

}  // namespace vescomm::internal
