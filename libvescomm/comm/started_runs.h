// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/wait_note.h"
#include "execute/slot_sequences.h"

namespace vescomm::internal {

// Which runs this rank has started, which all-gathers over the control plane, and which calls on
// device memory. Run numbers only grow on a channel, so the highest one is enough. Messages are not
// among them.
//
// Threads: the caller holds the lock of the progress engine, except for start_device_call().
class StartedRuns {
public:
    // Reserves the memory for an operation whose runs use `channel`, and the next ones if it uses a
    // staging buffer.
    void admit(std::uint32_t channel) {
        const std::size_t size = std::size_t{channel} + inline_slots;
        if (latest_.size() < size) latest_.resize(size);
    }
    void start(const RunId &run) noexcept { latest_[run.channel] = run.number; }
    RunId start_gather() noexcept { return {control_channel, ++gathers_}; }
    RunId start_device_call() noexcept {
        return {device_channel, device_calls_.fetch_add(1, std::memory_order_relaxed) + 1};
    }

    // True also for a run of a channel that this rank does not know.
    bool contains(const RunId &run) const noexcept {
        if (run.channel == control_channel) return run.number <= gathers_;
        if (run.channel == device_channel)
            return run.number <= device_calls_.load(std::memory_order_relaxed);
        return run.channel >= latest_.size() || run.number <= latest_[run.channel];
    }

private:
    std::vector<std::uint32_t> latest_;  // by channel
    std::uint32_t gathers_ = 0;
    std::atomic<std::uint32_t> device_calls_{0};
};

}  // namespace vescomm::internal
