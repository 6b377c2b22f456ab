// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <utility>

#include "comm/progress_engine.h"

namespace vescomm::internal {

// The moments at which a long wait asks other ranks whether they wait elsewhere: rarely in a job
// whose ranks take long to arrive.
class Questions {
public:
    explicit Questions(double timeout_seconds) : next_(std::min(0.25, timeout_seconds / 4)) {}

    // `waited`: seconds since the begin of the wait. True: it is time to ask, once.
    bool due(double waited) {
        if (waited < next_) return false;
        next_ = 2 * waited;
        return true;
    }

private:
    double next_;
};

// A wait, which is among the long ones from list() on.
class ProgressEngine::LongWait {
public:
    LongWait(ProgressEngine &engine, const Waiting &waiting) : engine_(engine), waiting_(waiting) {}
    ~LongWait() {
        if (!listed_) return;
        const EngineLock::Caller lock(engine_.lock_);
        std::erase(engine_.long_waits_.waits, &waiting_);
    }
    LongWait(const LongWait &) = delete;
    LongWait &operator=(const LongWait &) = delete;

    void list() noexcept {
        if (!std::exchange(listed_, true)) engine_.list(waiting_);
    }

private:
    ProgressEngine &engine_;
    const Waiting &waiting_;
    bool listed_ = false;
};

}  // namespace vescomm::internal
