// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/checkpoint/agreement.h"
#include "fsdp/checkpoint/save.h"
#include "fsdp/checkpoint/system_calls.h"
#include "fsdp/checkpoint/tensor.h"

namespace vescomm::fsdp::checkpoint {

// A save that runs in a thread of its own, from a copy of the pieces. One thread at a time uses the
// object.
class SaveJob {
public:
    struct Contents {
        std::vector<Piece> pieces;
        std::vector<Extra> extras;
    };

    // Copies the data of all pieces that contents() returns, and starts save(). The caller may
    // change the data afterwards. Errors of contents(), of the copy and of the thread are those of
    // the save on all ranks. `calls` must outlive the job.
    //
    // Collective.  Blocking: for the copy only.  Memory: the bytes of the pieces, until the end.
    SaveJob(const std::string &folder, const std::function<Contents()> &contents,
            std::unique_ptr<Agreement> agreement, const SaveOptions &options = {},
            SystemCalls &calls = system_calls());
    // Ends a save that still runs: it fails on all ranks, unless it was about to be complete.
    ~SaveJob();
    SaveJob(const SaveJob &) = delete;
    SaveJob &operator=(const SaveJob &) = delete;

    // Returns true when the save is complete or has failed.
    bool test() const;
    // Waits for the end of the save. Throws Error(TIMEOUT) when the time has passed, and the save
    // goes on; otherwise throws the error of the save. May be called again.
    SaveResult wait(double timeout_seconds);

private:
    struct State;
    std::shared_ptr<State> state_;  // shared with the thread
};

}  // namespace vescomm::fsdp::checkpoint
