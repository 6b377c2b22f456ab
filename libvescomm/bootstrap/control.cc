// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#include "bootstrap/control.h"

#include <string>

#include "base/error.h"
#include "base/interrupt.h"

namespace vescomm::internal {

std::vector<std::string> Control::all_gather(std::string_view label, std::string_view bytes,
                                             Deadline deadline) {
    const auto begin = Clock::now();
    LoopDeadline limit(deadline, begin);
    start_all_gather(label, bytes);
    for (;;) {
        const std::uint64_t seen = events();
        if (auto answer = test_all_gather()) return std::move(*answer);
        limit.look(Clock::now());
        if (limit.expired())
            expire_all_gather(std::chrono::duration<double>(Clock::now() - begin).count());
        if (interrupted()) {
            fail(VESCOMM_ERROR_ABORTED,
                 "rank " + std::to_string(rank()) + " was interrupted in " + std::string(label));
            // Throws that failure, or an earlier one.
            if (auto answer = test_all_gather()) return std::move(*answer);
        }
        wait_event(seen, next_interrupt(limit.limit().moment()));
    }
}

void Control::leave(Deadline deadline) noexcept {
    try {
        start_leave();
        for (;;) {
            const std::uint64_t seen = events();
            if (test_leave() || deadline.expired()) break;
            wait_event(seen, deadline.moment());
        }
    } catch (...) {
        // Out of memory. The other ranks treat leaving without goodbye as a failure.
    }
    end_leave();
}

bool Control::send_note(int, std::string) {
    return false;
}

std::unique_ptr<Control> Control::subgroup(std::string_view, const std::vector<int> &, Deadline) {
    throw Error(VESCOMM_ERROR_UNSUPPORTED, "this control plane has no subgroups");
}

Control::Shrink Control::shrinking() const {
    return [](const std::set<int> &, Deadline, std::vector<int> &) -> std::unique_ptr<Control> {
        throw Error(VESCOMM_ERROR_UNSUPPORTED, "this control plane cannot go on after a failure");
    };
}

Membership Control::membership() const {
    Membership alone;
    for (int rank = 0; rank < ranks(); ++rank) alone.processes.push_back(rank);
    return alone;
}

DescriptorExchange &Control::descriptors() {
    throw Error(VESCOMM_ERROR_UNSUPPORTED, "this control plane passes no descriptors");
}

}  // namespace vescomm::internal
