// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "bootstrap/os_network.h"
#include "bootstrap/session_core.h"

namespace vescomm::internal {

// The control thread of this process. It also owns the hubs that outlive the communicators of this
// process because other processes still use them.
//
// Threads: safe.
class ControlThread {
public:
    // Returns the existing thread, or starts one.
    static std::shared_ptr<ControlThread> get();
    ~ControlThread();

    OsNetwork &network() { return network_; }

    // Registers a core, which is notified when memory runs out in a callback. In the network's
    // thread.
    void add(SessionCore *core);
    void remove(SessionCore *core);

    // Owns a hub until it is deserted. Must not be called in the network's thread.
    static void keep(std::shared_ptr<ControlThread> self, std::unique_ptr<SessionCore> hub);

private:
    ControlThread();
    void caught(const std::exception &error);
    void reap();

    // cores_ and hubs_ are used in the network's thread only.
    std::vector<SessionCore *> cores_;
    std::vector<std::unique_ptr<SessionCore>> hubs_;
    OsNetwork network_;  // last: its thread uses the other members
};

}  // namespace vescomm::internal
