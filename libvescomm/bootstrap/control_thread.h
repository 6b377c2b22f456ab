// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "bootstrap/os_network.h"
#include "bootstrap/session_core.h"

namespace vescomm {

// The control thread of this process, and the hubs in it that outlive the communicators of their
// own process because other processes still use them.
//
// Threads: safe.
class ControlThread {
public:
    // The one that there is, or a new one.
    static std::shared_ptr<ControlThread> get();
    ~ControlThread();

    OsNetwork &network() { return network_; }

    // In the network's thread: cores that are told when memory runs out in a callback.
    void add(SessionCore *core);
    void remove(SessionCore *core);

    // Takes over a hub until it is deserted. Not in the network's thread.
    static void keep(std::shared_ptr<ControlThread> self, std::unique_ptr<SessionCore> hub);

private:
    ControlThread();
    void caught(const std::exception &error);
    void reap();

    // Both: the network's thread only.
    std::vector<SessionCore *> cores_;
    std::vector<std::unique_ptr<SessionCore>> hubs_;
    OsNetwork network_;  // last: its thread uses the others
};

}  // namespace vescomm
