// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
//
// Calls and waits of DeviceCommunicator, for the files that define its members.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "base/interrupt.h"
#include "comm/outside_wait.h"
#include "gpu/device_communicator.h"

namespace vescomm::internal {

template <typename Call>
nccl::Result DeviceCommunicator::call_in_background(const char *function, const Call &call) {
    const BackgroundCall running = call_on_device(libraries_.cuda, device(), call);
    poll(function, [&] { return running.done(); });
    return running.result();
}

template <typename Progress>
void DeviceCommunicator::end_if_broken(const Progress &make_progress) {
    try {
        make_progress();
    } catch (...) {
        if (comm_->failure().broken()) nccl_.end();
        throw;
    }
}

// Its lifetime is a wait of this rank for its device, which the others name after a timeout.
class ShownWait {
public:
    explicit ShownWait(DeviceCallMatch *calls) : calls_(calls) {
        if (calls_ != nullptr) calls_->set_waiting(true);
    }
    ~ShownWait() {
        if (calls_ != nullptr) calls_->set_waiting(false);
    }
    ShownWait(const ShownWait &) = delete;
    ShownWait &operator=(const ShownWait &) = delete;

private:
    DeviceCallMatch *const calls_;
};

template <typename Done>
void DeviceCommunicator::poll(const char *what, const Done &done) {
    LoopDeadline limit(comm_->deadline(), Clock::now());
    Clock::time_point ask = next_interrupt(limit.limit().moment());
    // NCCL starts a call in some ten microseconds: the first waits do not sleep. Long ones leave
    // the core to others.
    const Clock::time_point sleep_after = Clock::now() + std::chrono::milliseconds(1);
    auto pause = std::chrono::microseconds(10);
    Clock::duration long_wait = std::chrono::milliseconds(250);
    const std::chrono::duration<double> counts_wait(
        std::min(4.0, comm_->config().timeout_seconds / 4.0));
    const Clock::time_point begin = Clock::now();
    const ShownWait shown(calls_.get());
    std::optional<ProgressEngine::OutsideWait> crossed;
    while (!done()) {
        end_if_broken([&] { comm_->try_progress(); });
        compare_calls();
        if (calls_ && Clock::now() - begin >= long_wait) {
            calls_->send_to_nodes();
            // A training step may take longer than the first waits.
            if (long_wait >= counts_wait) calls_->send_counts_to_nodes();
            long_wait *= 2;
        }
        limit.look(Clock::now());
        if (limit.expired())
            fail(VESCOMM_ERROR_TIMEOUT, "rank " + std::to_string(rank()) + " waited for " + what +
                                            " until its deadline" + late_ranks());
        if (can_interrupt() && Clock::now() >= ask) {
            if (interrupted())
                fail(VESCOMM_ERROR_ABORTED, "the program of rank " + std::to_string(rank()) +
                                                " ended its wait for " + what);
            ask = next_interrupt(limit.limit().moment());
        }
        if (Clock::now() < sleep_after) {
            std::this_thread::yield();
            continue;
        }
        if (last_call_.number != 0) {
            if (!crossed)
                crossed.emplace(comm_->engine(), last_call_,
                                [this] { return calls_->last_text(); });
            crossed->pass_notes(std::chrono::duration<double>(Clock::now() - begin).count());
        }
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, std::chrono::microseconds(1000));
    }
}

}  // namespace vescomm::internal
