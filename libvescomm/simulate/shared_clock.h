// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <vector>

namespace vescomm {

// Work of the ranks of one node that shares its cores and its memory. All of it is slowed down by
// the same factor, which changes whenever some begins or ends; so a clock that runs at that speed
// says when each piece is done, and no piece has to be looked at in between.
class SharedClock {
public:
    // Cores, and bytes per second of memory; 0 is no limit.
    SharedClock(int cores, double memory) : cores_(cores), memory_(memory) {}

    // Begins work of `rank` that would take `seconds` alone, at `memory` bytes per second.
    void begin(double now, int rank, double seconds, double memory) {
        pass_to(now);
        work_.push({time_ + seconds, rank, memory});
        demand_ += memory;
        ++version_;
    }
    // When the next piece is done, if nothing begins before.
    double next() const { return at_ + (work_.top().done - time_) / speed(); }
    // Ends the next piece at that time, and says whose it was.
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
    // What next() said holds as long as this does not change.
    std::uint32_t version() const { return version_; }

private:
    struct Work {
        double done;  // on this clock
        int rank;
        double memory;
        // The first is the one on top; ranks that end together do so in order.
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
    double at_ = 0;  // real time
    double time_ = 0;  // on this clock
    double demand_ = 0;
    std::priority_queue<Work> work_;
    std::uint32_t version_ = 0;
};

}  // namespace vescomm
