// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/control.h"

#include <chrono>
#include <exception>

namespace vescomm {

std::vector<std::string> Control::all_gather(std::string_view label, std::string_view bytes,
                                             Deadline deadline) {
    const auto begin = Clock::now();
    start_all_gather(label, bytes);
    for (;;) {
        if (auto all = test_all_gather()) return std::move(*all);
        if (deadline.expired())
            expire_all_gather(std::chrono::duration<double>(Clock::now() - begin).count());
        sleep_until_event(deadline);
    }
}

void Control::leave(Deadline deadline) noexcept {
    try {
        start_leave();
        while (!test_leave() && !deadline.expired()) sleep_until_event(deadline);
    } catch (const std::exception &) {
        // Out of memory: leaving without goodbye is a failure, and looks like one to the others.
    }
    end_leave();
}

}  // namespace vescomm
