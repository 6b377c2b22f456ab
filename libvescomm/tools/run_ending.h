// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>

#include "base/deadline.h"

namespace vescomm::internal {

// The times at which a launcher ends its ranks: SIGTERM, then SIGKILL.
class Ending {
public:
    enum class Signal { none, term, kill };

    // SIGTERM is due after this time.
    void begin(double seconds) {
        begun_ = true;
        next_ = Deadline::after(seconds);
    }
    // The ranks have been asked to end: SIGKILL is due after this time.
    void begin_grace(double seconds) {
        begin(seconds);
        asked_ = true;
    }
    bool begun() const { return begun_; }
    // True: SIGTERM was due, or the ranks have been asked before.
    bool asked() const { return asked_; }
    // Milliseconds until a signal is due, for poll(); -1: none will be.
    int timeout() const {
        return next_ ? static_cast<int>(std::min(next_->seconds_left() * 1e3 + 1, 1e9)) : -1;
    }
    // Returns each signal once, when it is due. `grace_seconds`: between the two.
    Signal take(double grace_seconds) {
        if (!next_ || !next_->expired()) return Signal::none;
        next_.reset();
        if (asked_) return Signal::kill;
        asked_ = true;
        next_ = Deadline::after(grace_seconds);
        return Signal::term;
    }

private:
    bool begun_ = false;
    bool asked_ = false;  // SIGTERM was due, or the ranks have been asked before
    std::optional<Deadline> next_;
};

}  // namespace vescomm::internal
