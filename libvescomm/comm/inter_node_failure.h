// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <utility>

#include "base/deadline.h"
#include "base/failure.h"

namespace vescomm::internal {

// The first failure that an inter-node transport reports. It may be an echo: of a death that the
// control plane reports too, or of another survivor that gave up for that reason. So it counts only
// once the control plane has had time for a better report.
class InterNodeFailure {
public:
    static constexpr auto patience = std::chrono::milliseconds(500);

    // `wake`: wakes the threads that wait.
    void on_first(std::function<void()> wake) {
        failure_.on_first([this, wake = std::move(wake)] {
            since_ = Clock::now().time_since_epoch().count();
            wake();
        });
    }

    Failure &failure() noexcept { return failure_; }
    bool broken() const noexcept { return failure_.broken(); }
    // True: it failed, and `patience` has passed since.
    bool counts() const noexcept {
        const Clock::rep since = broken() ? since_.load() : 0;
        return since != 0 && Clock::now() - Clock::time_point{Clock::duration(since)} >= patience;
    }

private:
    Failure failure_;
    std::atomic<Clock::rep> since_{0};  // moment of the failure; 0: none, or not known yet
};

}  // namespace vescomm::internal
