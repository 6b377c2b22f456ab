// SPDX-FileCopyrightText: The vescomm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "bootstrap/control.h"

namespace vescomm::internal {

// The connections of one process to others, which communicators share. A fabric is made together
// with a communicator and numbers its processes by the ranks of that communicator.
class Fabric {
public:
    virtual ~Fabric() = default;
    // True if there is a connection to the process and it has not ended.
    virtual bool connects(int process) const noexcept = 0;
};

// A fabric, as one communicator uses it.
struct FabricShare {
    std::shared_ptr<Fabric> fabric;
    std::vector<int> peers;  // by rank: number of its process on the fabric; -1: not a peer
};

// Returns a fabric for a communicator: one that this process already shares with all its peers, or
// else a new one. Collective over the ranks of `control`, blocking.
//
// kind   fabrics of one kind are interchangeable; must be equal on every rank
// peers  by rank: true to be connected to it. If rank a has b as a peer, b must have a.
// make   makes a new fabric; collective over the same ranks
//
// Throws the errors of the all-gather and of `make`. Threads: safe.
FabricShare share_fabric(Control &control, const std::string &kind, const std::vector<bool> &peers,
                         const std::function<std::shared_ptr<Fabric>()> &make, Deadline deadline);

}  // namespace vescomm::internal
