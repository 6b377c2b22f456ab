// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/wait_note.h"
#include "execute/slot_sequences.h"

namespace vescomm::internal {

// Which runs this rank has started, and which all-gathers over the control plane. Run numbers only
// grow on a channel, so the highest one is enough. Messages are not among them.
//
// Threads: the caller holds the lock of the progress engine.
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

    // True also for a run of a channel that this rank does not know.
    bool contains(const RunId &run) const noexcept {
        if (run.channel == control_channel) return run.number <= gathers_;
        return run.channel >= latest_.size() || run.number <= latest_[run.channel];
    }

private:
    std::vector<std::uint32_t> latest_;  // by channel
    std::uint32_t gathers_ = 0;
};

}  // namespace vescomm::internal
