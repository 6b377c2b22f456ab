// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "comm/long_wait.h"

namespace vescomm::internal {

// A wait of a caller that the engine does not make: for the device, after a call on device memory.
// Ranks that wait elsewhere for this rank learn of it when it is long, and this rank asks them.
// Decision: docs/design/0039-crossed-waits-are-a-mismatch.md.
class ProgressEngine::OutsideWait {
public:
    // `run`: of the last call; see StartedRuns::start_device_call(). `what`: the call, for errors.
    OutsideWait(ProgressEngine &engine, const RunId &run, std::function<std::string()> what);

    // Passes the notes of other ranks, and asks them if the wait is long. Breaks the communicator
    // if another rank waits in a call that this one has not made, and has not made this one.
    void pass_notes(double waited_seconds) noexcept;

private:
    ProgressEngine &engine_;
    const Waiting waiting_;
    LongWait listed_;
    Questions questions_;
};

}  // namespace vescomm::internal
