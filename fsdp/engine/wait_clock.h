// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Seconds in which a rank waits for other ranks, in total and by account. A wait that begins within
// another one is a part of it.
#pragma once

#include <utility>

#include "vescomm/vescomm.h"

namespace vescomm::fsdp {

class WaitClock {
public:
    // The waits of its lifetime count for an account. A scope within it has another account.
    class Scope {
    public:
        Scope(WaitClock &clock, double &account)
            : clock_(clock), outer_(std::exchange(clock.account_, &account)) {}
        ~Scope() { clock_.account_ = outer_; }
        Scope(const Scope &) = delete;
        Scope &operator=(const Scope &) = delete;

    private:
        WaitClock &clock_;
        double *outer_;
    };

    // Its lifetime is a wait.
    class Wait {
    public:
        explicit Wait(WaitClock &clock)
            : clock_(clock),
              within_(std::exchange(clock.waiting_, true)),
              begin_(within_ ? 0 : vescomm_trace_get_seconds()) {}
        ~Wait() {
            if (within_) return;
            const double seconds = vescomm_trace_get_seconds() - begin_;
            clock_.seconds_ += seconds;
            if (clock_.account_ != nullptr) *clock_.account_ += seconds;
            clock_.waiting_ = false;
        }
        Wait(const Wait &) = delete;
        Wait &operator=(const Wait &) = delete;

    private:
        WaitClock &clock_;
        bool within_;
        double begin_;
    };

    // All waits that have ended.
    double seconds() const { return seconds_; }

private:
    double seconds_ = 0;
    double *account_ = nullptr;  // of the innermost scope
    bool waiting_ = false;
};

}  // namespace vescomm::fsdp
