// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Seconds that a rank spends in the phases of the engine. A phase that begins within another one
// interrupts it, so that no second counts twice.
#pragma once

#include "vescomm/vescomm.h"

namespace vescomm::fsdp {

struct Phases {
    double none = 0;  // in no phase
    double gather = 0;  // starts of gathers, and waits for them
    double reduce = 0;  // starts of sums of gradients, and waits for them
    double agree = 0;  // waits for the arguments of a step, its norm, and gradients of copies
    double measure = 0;  // squares of gradients
    double update = 0;  // optimizers
};

class PhaseTimes {
public:
    using Phase = double Phases::*;

    // Counts its lifetime.
    class Scope {
    public:
        Scope(PhaseTimes &times, Phase phase) : times_(times), outer_(times.change(phase)) {}
        ~Scope() { times_.change(outer_); }
        Scope(const Scope &) = delete;
        Scope &operator=(const Scope &) = delete;

    private:
        PhaseTimes &times_;
        Phase outer_;
    };

    const Phases &seconds() const { return seconds_; }
    // Goes on with the seconds of another engine.
    void take(const PhaseTimes &before) { seconds_ = before.seconds_; }

private:
    Phase change(Phase next) {
        const double now = vescomm_trace_get_seconds();
        seconds_.*current_ += now - begin_;
        begin_ = now;
        const Phase before = current_;
        current_ = next;
        return before;
    }

    Phases seconds_;
    Phase current_ = &Phases::none;
    double begin_ = 0;
};

}  // namespace vescomm::fsdp
