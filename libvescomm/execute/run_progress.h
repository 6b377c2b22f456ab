// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "execute/program.h"

namespace vescomm::internal {

// The progress of the current run of an operation: the steps that its lanes have reached, the puts
// that have not ended, and the result of the run.
class RunProgress {
public:
    struct Position {
        std::size_t at = 0;  // the next step of the lane
        std::size_t advertised = 0;  // the step at which it last advertised the signature
    };

    explicit RunProgress(const Program &program) {
        for (const BoundLane &lane : program.lanes) lanes_.push_back({.at = lane.steps.size()});
    }

    void start(const Program &program) noexcept {
        ++runs_;
        settled_ = false;
        lanes_running_ = 0;
        for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
            const std::size_t steps = program.lanes[lane].steps.size();
            lanes_[lane] = {.at = 0, .advertised = steps};
            if (steps > 0) ++lanes_running_;
        }
    }

    // start() of a program with one lane of `steps` steps, at least one.
    void start_lane(std::size_t steps) noexcept {
        ++runs_;
        settled_ = false;
        lanes_running_ = 1;
        lanes_[0] = {.at = 0, .advertised = steps};
    }

    std::vector<Position> &lanes() noexcept { return lanes_; }
    const std::vector<Position> &lanes() const noexcept { return lanes_; }
    // A lane has executed its last step.
    void end_lane() noexcept { --lanes_running_; }
    // The transports decrement it.
    std::atomic<std::uint32_t> &puts_pending() noexcept { return puts_pending_; }

    void mark_failed() noexcept { failed_ = true; }
    bool complete() const noexcept {
        return lanes_running_ == 0 && !failed_ &&
               puts_pending_.load(std::memory_order_acquire) == 0;
    }
    void settle() noexcept { settled_ = true; }
    // True: every run that was started has been settled.
    bool settled() const noexcept { return settled_; }
    // Runs that were started.
    std::uint64_t runs() const noexcept { return runs_; }

private:
    std::vector<Position> lanes_;
    std::size_t lanes_running_ = 0;
    std::uint64_t runs_ = 0;
    bool failed_ = false, settled_ = true;
    std::atomic<std::uint32_t> puts_pending_{0};
};

}  // namespace vescomm::internal
