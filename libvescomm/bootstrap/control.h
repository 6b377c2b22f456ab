// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "vescomm/vescomm.h"

namespace vescomm {

// The control plane of one communicator: the one operation that set-up needs, and news of peers
// that are gone. Never on the path of data.
//
// Threads: all_gather() and leave() from one thread at a time; fail() from any thread.
class Control {
public:
    // Called at most once, with the first cause: from a thread of the control plane, or from one
    // that all_gather() throws that cause in, before it does.
    using Listener = std::function<void(vescomm_status_t, const std::string &)>;

    virtual ~Control() = default;

    virtual int rank() const = 0;
    virtual int ranks() const = 0;

    // Collective, blocking: every rank contributes some bytes and receives everyone's, by rank.
    // `label` says which call this is ("buffer \"block.3\" creation"): when ranks meet with
    // different labels all of them throw MISMATCH, naming two of the ranks and both labels.
    // Throws TIMEOUT naming the ranks that have not arrived, PEER_FAILED naming one that died.
    virtual std::vector<std::string> all_gather(std::string_view label, std::string_view bytes,
                                                Deadline deadline) = 0;

    // Sets who hears of the first failure, wherever it happened. A failure that is already known
    // is delivered at once, from the calling thread.
    virtual void listen(Listener listener) = 0;

    // Tells every rank that the communicator is broken, and why. Does not block.
    virtual void fail(vescomm_status_t status, const std::string &why) noexcept = 0;

    // Orderly end: says goodbye and returns once every rank has done so, the communicator broke,
    // or the deadline passed. A rank that disappears without goodbye is a failure; one that has
    // said goodbye is not.
    virtual void leave(Deadline deadline) noexcept = 0;
};

}  // namespace vescomm
