// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Waits that the program ends early; see vescomm_set_interrupt().
#pragma once

#include <algorithm>
#include <chrono>

#include "base/deadline.h"
#include "vescomm/vescomm.h"

namespace vescomm::internal {

void set_interrupt(vescomm_interrupt_function_t function, void *context);

// True if the program has set a function: interrupted() may take long.
bool can_interrupt();

// Asks the program whether the calling thread, which waits, is to end its wait. The program's
// function may take long: the caller holds no lock.
bool interrupted();

// End of a sleep after which a waiting thread asks again.
inline Clock::time_point next_interrupt(Clock::time_point until) {
    constexpr auto period = std::chrono::milliseconds(100);
    return std::min(until, Clock::now() + period);
}

// For waits that poll often: asks the program no more often than a sleeping wait does.
class InterruptPoll {
public:
    bool interrupted() {
        const auto now = Clock::now();
        if (now < next_) return false;
        next_ = next_interrupt(Clock::time_point::max());
        return vescomm::internal::interrupted();
    }

private:
    Clock::time_point next_{};
};

}  // namespace vescomm::internal
