// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "gpu/device_call.h"

namespace vescomm::internal {

// Passes calls on device memory between nodes, over the control plane. A rank sends them to the
// ranks before and behind it, if these are on other nodes: if any two ranks differ, two neighbours
// do.
//
// Threads: one at a time.
class DeviceCallNotes {
public:
    struct Call {
        int rank = 0;  // the sender
        std::uint64_t number = 0;
        DeviceCall call;
    };

    // Collective, blocking. `number`: the same on all ranks, and of no other object of `comm`. A
    // control plane without subgroups passes nothing.
    DeviceCallNotes(Communicator &comm, std::uint64_t number);
    ~DeviceCallNotes();
    DeviceCallNotes(const DeviceCallNotes &) = delete;
    DeviceCallNotes &operator=(const DeviceCallNotes &) = delete;

    // True: there are other nodes, and a control plane that passes calls to them.
    bool connected() const { return control_ != nullptr; }
    // Sends the last of these calls of this rank, as many as fit into a note.
    void send(const std::vector<Call> &calls) const;
    // Calls of neighbours that have arrived.
    std::vector<Call> take();

private:
    std::vector<int> neighbours_;
    std::unique_ptr<Control> control_;  // nullptr: nothing is passed
};

}  // namespace vescomm::internal
